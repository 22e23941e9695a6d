package expectation

import (
	"testing"
	"time"
)

func TestPending(t *testing.T) {
	t.Parallel()

	written := time.Unix(1000, 0)

	for _, c := range []struct {
		why     string
		version string
		shown   []string
		after   time.Duration
		want    bool
	}{
		{"nothing was written", "", []string{"1"}, 0, false},
		{"the cache has the version from before the write", "12", []string{"9"}, 0, true},
		{"the cache does not have a new object yet", "12", []string{""}, 0, true},
		{"the cache has what was written", "12", []string{"12"}, 0, false},
		{"the cache has what another client wrote since", "12", []string{"13"}, 0, false},
		{"an object that was shown and is gone was deleted", "12", []string{"12", ""}, 0, false},
		{"an object that was not shown for so long was deleted", "12", []string{""}, 3 * time.Second, false},
		{"a version that cannot be compared is not waited for", "12", []string{"other"}, 0, false},
	} {
		var e Expectation

		e.Expect(c.version, written)

		got := false
		for _, version := range c.shown {
			got = e.Pending(version, written.Add(c.after))
		}

		if got != c.want {
			t.Errorf("%s: pending = %t", c.why, got)
		}
	}
}
