package measure

import (
	"math"
	"slices"
	"time"
)

// Quantile is the smallest of the durations that the share q of them, from 0
// to 1, does not exceed. It is 0 for none.
func Quantile(durations []time.Duration, q float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}

	sorted := slices.Sorted(slices.Values(durations))
	rank := int(math.Ceil(q * float64(len(sorted))))

	return sorted[min(max(rank, 1), len(sorted))-1]
}
