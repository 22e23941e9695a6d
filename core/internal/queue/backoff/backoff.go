// Package backoff has the pauses between tries of one object, on top of
// client-go's wait.Backoff. Neither type is safe for concurrent use: both are
// part of a record that one worker at a time uses.
package backoff

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// New returns pauses that double from the shortest to the longest. Up to a tenth
// is added at random, so that objects that failed together are not tried again
// together.
func New(shortest, longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: shortest, Factor: 2, Jitter: 0.1, Steps: math.MaxInt32, Cap: longest}
}
