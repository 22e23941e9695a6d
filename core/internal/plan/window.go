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
	// maxSpans bounds the spans of one window that are looked at.
	maxSpans = 10000
	// stretch is how far the end of overlapping windows is followed; whoever
	// sleeps until then looks again.
	stretch = 24 * time.Hour
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
// windows must not move with the moment at which somebody asks.
type everySchedule struct{ delay time.Duration }

// Next multiple after t.
func (e everySchedule) Next(t time.Time) time.Time { return t.Truncate(e.delay).Add(e.delay) }

// permitted tells whether sync windows let a refresh through at a moment, and,
// where they do not, from when on they do; zero where that is never. Windows
// that cannot be read are New's to refuse; here they do not count.
func permitted(windows *esv1.SyncWindows, now time.Time) (ok bool, from time.Time) {
	if windows == nil {
		return true, time.Time{}
	}

	now = now.UTC()
	end := openUntil(windows.Windows, now)

	if windows.Kind == "deny" {
		return end.IsZero(), end
	}

	if !end.IsZero() {
		return true, time.Time{}
	}

	return false, nextStart(windows.Windows, now)
}

// Window tells whether sync windows let a periodic refresh through at a moment,
// and when that changes next; zero where it never does.
func Window(windows *esv1.SyncWindows, now time.Time) (open bool, edge time.Time) {
	open, edge = permitted(windows, now)

	switch {
	case windows == nil || !open:
		return open, edge
	case windows.Kind == "deny":
		return open, nextStart(windows.Windows, now.UTC())
	default:
		return open, openUntil(windows.Windows, now.UTC())
	}
}

// openUntil gives the end of the stretch of windows that now lies in; zero
// where it lies in none.
func openUntil(windows []esv1.SyncWindow, now time.Time) time.Time {
	var end time.Time

	at := now

	for end.Sub(now) < stretch || end.IsZero() {
		grown := false

		for _, window := range windows {
			if until := windowEnd(window, at); until.After(at) && until.After(end) {
				end, grown = until, true
			}
		}

		if !grown {
			break
		}

		at = end
	}

	return end
}

// windowEnd gives the end of the last of a window's spans that hold a moment;
// zero where none does.
func windowEnd(window esv1.SyncWindow, at time.Time) time.Time {
	schedule, err := parseSchedule(window.Schedule)
	if err != nil || window.Duration.Duration <= 0 {
		return time.Time{}
	}

	var end time.Time

	// A span that began after at-duration, and not after at, holds at.
	start := schedule.Next(at.Add(-window.Duration.Duration))
	for range maxSpans {
		if start.IsZero() || start.After(at) {
			break
		}

		end = start.Add(window.Duration.Duration)
		start = schedule.Next(start)
	}

	return end
}

func nextStart(windows []esv1.SyncWindow, now time.Time) time.Time {
	var next time.Time

	for _, window := range windows {
		schedule, err := parseSchedule(window.Schedule)
		if err != nil {
			continue
		}

		start := schedule.Next(now)
		if start.IsZero() || start.Sub(now) > horizon {
			continue
		}

		if next.IsZero() || start.Before(next) {
			next = start
		}
	}

	return next
}
