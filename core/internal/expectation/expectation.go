// Package expectation reports whether the cache already shows what this process
// has written: a cache that lags behind must not be taken for a change that
// another client created.
package expectation

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// MaxLag is the longest that a cache is waited for. What it shows after that is
// current: another client has written the object, or deleted it.
const MaxLag = 2 * time.Second

// Expectation is the resource version of an object that the cache is expected
// to show. The zero value expects nothing. It is not safe for concurrent use.
type Expectation struct {
	version string
	until   time.Time
}

// Expect expects a version that was just written, or a newer one; "" expects
// nothing.
func (e *Expectation) Expect(version string, now time.Time) {
	*e = Expectation{}
	if version != "" {
		*e = Expectation{version: version, until: now.Add(MaxLag)}
	}
}

// Pending reports whether the cache, which has a version or, where that is "",
// no such object, is older than expected. What was met once is not expected any
// more: an object that is absent from then on was deleted.
func (e *Expectation) Pending(version string, now time.Time) bool {
	if e.version == "" {
		return false
	}

	if now.After(e.until) || !older(version, e.version) {
		*e = Expectation{}

		return false
	}

	return true
}

func older(version, than string) bool {
	if version == "" {
		return true
	}

	compared, err := resourceversion.CompareResourceVersion(version, than)

	return err == nil && compared < 0
}
