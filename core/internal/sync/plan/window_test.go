package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

func TestPermitted(t *testing.T) {
	t.Parallel()

	// A Friday.
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 1, day, hour, minute, 0, 0, time.UTC) }
	window := func(schedule string, d time.Duration) esv1.SyncWindow {
		return esv1.SyncWindow{Schedule: schedule, Duration: metav1.Duration{Duration: d}}
	}

	for _, c := range []struct {
		why     string
		kind    string
		windows []esv1.SyncWindow
		now     time.Time
		want    bool
		from    time.Time
	}{
		{why: "inside an allowed window", kind: "allow", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour)}, want: true},
		{why: "before it", kind: "allow", windows: []esv1.SyncWindow{window("0 4 * * *", time.Hour)}, from: at(2, 4, 0)},
		{why: "after it, the next day", kind: "allow", windows: []esv1.SyncWindow{window("0 1 * * *", time.Hour)}, from: at(3, 1, 0)},
		{why: "the nearest of several", kind: "allow", windows: []esv1.SyncWindow{window("0 9 * * *", time.Hour), window("0 5 * * *", time.Hour)}, from: at(2, 5, 0)},
		{why: "a window that began yesterday", kind: "allow", windows: []esv1.SyncWindow{window("0 22 * * *", 8*time.Hour)}, want: true},
		{why: "inside a denied window until its end", kind: "deny", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour)}, from: at(2, 4, 0)},
		{why: "outside a denied window", kind: "deny", windows: []esv1.SyncWindow{window("0 5 * * *", time.Hour)}, want: true},
		{why: "until the end of windows that overlap", kind: "deny", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour), window("30 3 * * *", 2*time.Hour)}, from: at(2, 5, 30)},
		{why: "and of those that follow at once", kind: "deny", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour), window("0 4 * * *", time.Hour)}, from: at(2, 5, 0)},
		{why: "the very moment at which a window ends is outside", kind: "deny", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour)}, now: at(2, 4, 0), want: true},
		{why: "the very moment at which it begins is inside", kind: "allow", windows: []esv1.SyncWindow{window("0 3 * * *", time.Hour)}, now: at(2, 3, 0), want: true},
		{why: "a day that never comes", kind: "allow", windows: []esv1.SyncWindow{window("0 0 30 2 *", time.Hour)}},
		{why: "every hour for a quarter, from the full hour on", kind: "allow", windows: []esv1.SyncWindow{window("@every 1h", 15*time.Minute)}, want: true},
		{why: "and the last three quarters not", kind: "allow", windows: []esv1.SyncWindow{window("@every 1h", 15*time.Minute)}, now: at(2, 3, 20), from: at(2, 4, 0)},
		{why: "@daily is midnight UTC wherever the operator runs", kind: "allow", windows: []esv1.SyncWindow{window("@daily", time.Hour)}, now: at(2, 3, 0).In(time.FixedZone("far", 9*3600)), from: at(3, 0, 0)},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			moment := c.now
			if moment.IsZero() {
				moment = now
			}

			ok, from := permitted(&esv1.SyncWindows{Kind: c.kind, Windows: c.windows}, moment)
			if ok != c.want || (!c.want && !from.Equal(c.from)) {
				t.Errorf("permitted = %t from %s; want %t from %s", ok, from, c.want, c.from)
			}
		})
	}
}

// Windows that cost much to look at must not keep the operator busy, and the
// end of one is that of its last span, however many there are.
func TestPermittedIsBounded(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	for _, c := range []struct {
		why      string
		schedule string
		duration time.Duration
		windows  int
		until    time.Time
	}{
		{"a denied window without end", "* * * * *", 24 * time.Hour, 1, now.Add(48 * time.Hour).Truncate(time.Minute)},
		{"one that has begun half a million times", "* * * * *", 365 * 24 * time.Hour, 1, now.Add(365 * 24 * time.Hour).Truncate(time.Minute)},
		{"and begins every second", "@every 1s", 100 * 24 * time.Hour, 1, now.Add(100 * 24 * time.Hour)},
		{"windows that follow each other without end", "* * * * *", time.Minute, 1, time.Time{}},
		{"a thousand of them", "* * * * *", time.Minute, 1000, time.Time{}},
		{"a year that began at its first minute", "0 0 1 1 *", 365 * 24 * time.Hour, 1, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		windows := make([]esv1.SyncWindow, c.windows)
		for i := range windows {
			windows[i] = esv1.SyncWindow{Schedule: c.schedule, Duration: metav1.Duration{Duration: c.duration}}
		}

		began := time.Now()

		ok, from := permitted(&esv1.SyncWindows{Kind: "deny", Windows: windows}, now)
		if ok || !from.After(now) || (!c.until.IsZero() && !from.Equal(c.until)) {
			t.Errorf("%s: permitted = %t from %s; want %s", c.why, ok, from, c.until)
		}

		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: it took %s", c.why, took)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()

	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 30, 0, 0, time.UTC) }
	nightly := []esv1.SyncWindow{{Schedule: "0 2 * * *", Duration: metav1.Duration{Duration: 2 * time.Hour}}}

	for _, c := range []struct {
		why  string
		kind string
		now  time.Time
		open bool
		edge time.Time
	}{
		{"an open window closes", "allow", at(3), true, time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC)},
		{"a closed window opens", "allow", at(5), false, time.Date(2026, 1, 2, 2, 0, 0, 0, time.UTC)},
		{"a window that denies ends", "deny", at(3), false, time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC)},
		{"a window that denies begins", "deny", at(5), true, time.Date(2026, 1, 2, 2, 0, 0, 0, time.UTC)},
	} {
		open, edge := Window(&esv1.SyncWindows{Kind: c.kind, Windows: nightly}, c.now)
		if open != c.open || !edge.Equal(c.edge) {
			t.Errorf("%s: %t until %s", c.why, open, edge)
		}
	}

	if open, edge := Window(nil, at(1)); !open || !edge.IsZero() {
		t.Errorf("no windows: %t until %s", open, edge)
	}
}
