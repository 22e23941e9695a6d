package secretstore

import "testing"

// A tenant whose stores hang leaves workers to the others.
func TestShares(t *testing.T) {
	t.Parallel()

	s := &shares{limit: 2, inUse: map[string]int{}}

	for i, want := range []bool{true, true, false} {
		if got := s.take("a"); got != want {
			t.Errorf("validation %d of a: %t", i+1, got)
		}
	}

	if !s.take("b") {
		t.Error("another tenant waits")
	}

	s.give("a")

	if !s.take("a") {
		t.Error("a share that was given back is lost")
	}

	s.give("a")
	s.give("a")
	s.give("b")

	if len(s.inUse) > 0 {
		t.Errorf("something is left: %v", s.inUse)
	}
}
