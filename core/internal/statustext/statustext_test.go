package statustext

import "testing"

func TestStable(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ why, in, want string }{
		{"the id and the next try go", "gone (NotFound, request 0123456789abcdef); next try in 1.5s", "gone (NotFound)"},
		{"a next try inside another message goes, too", "not Ready: x; next try in 1m30s; tried again when", "not Ready: x; tried again when"},
		{"what only looks alike stays", "request denied; next attempt", "request denied; next attempt"},
	} {
		if got := Stable(c.in); got != c.want {
			t.Errorf("%s: %q, not %q", c.why, got, c.want)
		}
	}
}
