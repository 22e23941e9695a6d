// Package message knows which part of a condition's message says what is
// wrong, and which only counts tries.
package message

import "regexp"

// varying is what changes from try to try: when the next one is, and the id of
// the request.
var varying = regexp.MustCompile(`,? ?request [0-9a-f]{16}|; next try in [0-9.µa-z]+`)

// Stable gives the part of a message that does not change from one try to the
// next.
func Stable(text string) string { return varying.ReplaceAllString(text, "") }
