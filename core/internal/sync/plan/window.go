package plan

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// horizon bounds the search for the edge of a window: a schedule such as
// "0 0 30 2 *" never comes.
const horizon = 5 * 366 * 24 * time.Hour

const (
	// maxSteps bounds how many windows that follow or overlap each other are
	// followed, all of them together; the object is reconciled again then.
	maxSteps = 1000
	// stretch is how far they are followed.
	stretch = 24 * time.Hour
	// finest is the smallest distance of two starts of a schedule.
	finest = time.Second
)

// parseSchedule reads five cron fields or a descriptor such as @daily.
func parseSchedule(schedule string) (cron.Schedule, error) {
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return nil, fmt.Errorf("%q is no schedule of five cron fields, nor one such as @daily or @every 6h: %w", schedule, err)
	}

	if every, ok := parsed.(cron.ConstantDelaySchedule); ok {
		return everySchedule{every.Delay}, nil
	}

	return parsed, nil
}

// everySchedule comes at the multiples of its delay since Go's zero time:
// windows must not move with the time of the call.
type everySchedule struct{ delay time.Duration }

// Next multiple after t.
func (e everySchedule) Next(t time.Time) time.Time { return t.Truncate(e.delay).Add(e.delay) }

// span is a window that can be read.
type span struct {
	schedule cron.Schedule
	duration time.Duration
}

// spans of windows. One that cannot be read is New's to refuse; here it does
// not count.
func spans(windows []esv1.SyncWindow) []span {
	read := make([]span, 0, len(windows))

	for _, window := range windows {
		if schedule, err := parseSchedule(window.Schedule); err == nil && window.Duration.Duration > 0 {
			read = append(read, span{schedule, window.Duration.Duration})
		}
	}

	return read
}

// permitted reports whether sync windows let a refresh through at a moment, and,
// where they do not, from when on they do; zero where that is never.
func permitted(windows *esv1.SyncWindows, now time.Time) (ok bool, from time.Time) {
	if windows == nil {
		return true, time.Time{}
	}

	ok, from, _ = look(windows.Kind, spans(windows.Windows), now.UTC())

	return ok, from
}

// look does what permitted does, and gives the end of the stretch of windows
// that now lies in, too.
func look(kind string, windows []span, now time.Time) (ok bool, from, end time.Time) {
	end = openUntil(windows, now)

	switch {
	case kind == "deny":
		return end.IsZero(), end, end
	case !end.IsZero():
		return true, time.Time{}, end
	default:
		return false, nextStart(windows, now), end
	}
}

// Window reports whether sync windows let a periodic refresh through at a moment,
// and when that changes next; zero where it never does.
func Window(windows *esv1.SyncWindows, now time.Time) (open bool, edge time.Time) {
	if windows == nil {
		return true, time.Time{}
	}

	read := spans(windows.Windows)
	open, edge, end := look(windows.Kind, read, now.UTC())

	switch {
	case !open:
		return open, edge
	case windows.Kind == "deny":
		return open, nextStart(read, now.UTC())
	default:
		return open, end
	}
}

// openUntil gives the end of the stretch of windows that now lies in; zero
// where it lies in none.
func openUntil(windows []span, now time.Time) time.Time {
	var end time.Time

	at := now

	for range max(1, maxSteps/max(1, len(windows))) {
		grown := false

		for _, window := range windows {
			if until := window.end(at); until.After(at) && until.After(end) {
				end, grown = until, true
			}
		}

		if !grown || end.Sub(now) >= stretch {
			break
		}

		at = end
	}

	return end
}

// end of the last of a window's spans that hold a moment; zero where none does.
func (w span) end(at time.Time) time.Time {
	// A span that began after at-duration, and not after at, holds at.
	began := func(since time.Time) time.Time {
		start := w.schedule.Next(since)
		if start.After(at) {
			return time.Time{}
		}

		return start
	}

	after := at.Add(-w.duration)

	last := began(after)
	if last.IsZero() {
		return time.Time{}
	}

	// A schedule returns the next start only: the last one is found by bisection,
	// whatever the number of starts in between.
	for before := at; before.Sub(after) > finest; {
		middle := after.Add(before.Sub(after) / 2)

		if start := began(middle); start.IsZero() {
			before = middle
		} else {
			last, after = start, middle
		}
	}

	return last.Add(w.duration)
}

func nextStart(windows []span, now time.Time) time.Time {
	var next time.Time

	for _, window := range windows {
		start := window.schedule.Next(now)
		if start.IsZero() || start.Sub(now) > horizon {
			continue
		}

		if next.IsZero() || start.Before(next) {
			next = start
		}
	}

	return next
}
