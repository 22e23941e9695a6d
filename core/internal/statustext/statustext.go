// Package statustext knows which part of a condition's message says what is
// wrong, and which only counts tries.
package statustext

import (
	"regexp"
	"unicode/utf8"
)

// varying is what changes from try to try: when the next one is, and the id of
// the request.
var varying = regexp.MustCompile(`,? ?request [0-9a-f]{16}|; next try in [0-9.µa-z]+`)

// Stable gives the part of a message that does not change from one try to the
// next.
func Stable(text string) string { return varying.ReplaceAllString(text, "") }

// Longest notes of events (Kubernetes takes 1 kB), and messages of conditions
// (our kinds take 32 kB; a longer one would keep the whole status from being
// written).
const (
	MaxEvent     = 1000
	MaxCondition = 8000
)

// Cut shortens a text to so many bytes, at a character's end, and says so.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}

	const more = "..."

	limit -= len(more)
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}

	return text[:limit] + more
}
