package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	var short, all []string

	for _, s := range scenarios() {
		all = append(all, s.name)

		if !s.long {
			short = append(short, s.name)
		}
	}

	for _, c := range []struct {
		why       string
		args      []string
		scenarios []string
		stores    []int
	}{
		{"what is long must be asked for", nil, short, []int{1, 100}},
		{"everything", []string{"--scenario", "all"}, all, []int{1, 100}},
		{"some, and another number of stores", []string{"--scenario", "sync", "--scenario", "large", "--stores", "7"}, []string{"sync", "large"}, []int{7}},
	} {
		o, err := parse(c.args, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)

			continue
		}

		if diff := cmp.Diff(c.scenarios, o.scenarios); diff != "" {
			t.Errorf("%s: scenarios (-want +got):\n%s", c.why, diff)
		}

		if diff := cmp.Diff(c.stores, o.storeCounts); diff != "" {
			t.Errorf("%s: stores (-want +got):\n%s", c.why, diff)
		}

		if !o.targets {
			t.Errorf("%s: there are no targets", c.why)
		}
	}

	for why, args := range map[string][]string{
		"a scenario that there is not":    {"--scenario", "absent"},
		"no objects":                      {"--objects", "0"},
		"no stores":                       {"--stores", "0"},
		"too many stores for their names": {"--stores", "1,1001"},
		"an interval that the API does not distinguish from none": {"--refresh", "10ms"},
		"no unrelated Secrets": {"--unrelated", "0"},
		"an argument":          {"sync"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}

func TestScenarios(t *testing.T) {
	var names []string

	for _, s := range scenarios() {
		if s.name == "" || s.about == "" || s.run == nil || s.provider == "" {
			t.Errorf("scenario %q is not complete", s.name)
		}

		names = append(names, s.name)
	}

	slices.Sort(names)

	if len(slices.Compact(names)) != len(scenarios()) {
		t.Error("two scenarios have the same name")
	}
}

// A product that hangs must be asked as often as one that answers.
func TestProbesDoNotWaitForAnswers(t *testing.T) {
	asked := make(chan int, 10)

	took, err := probes(t.Context(), time.Millisecond, 10*time.Millisecond, func(_ context.Context, i int) (time.Duration, error) {
		asked <- i

		for len(asked) < cap(asked) {
			time.Sleep(time.Millisecond)
		}

		return time.Duration(i), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(took)

	if diff := cmp.Diff([]time.Duration{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, took); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	failure := errors.New("failure")

	if _, err := probes(t.Context(), time.Millisecond, 2*time.Millisecond, func(context.Context, int) (time.Duration, error) {
		return 0, failure
	}); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := probes(ended, time.Hour, 10*time.Hour, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of an interrupted one is %v", err)
	}
}

func TestPercent(t *testing.T) {
	if got := percent(1, 4); got != 25 {
		t.Errorf("1 of 4 is %v %%", got)
	}

	if got := percent(1, 0); got != 0 {
		t.Errorf("1 of 0 is %v %%", got)
	}
}
