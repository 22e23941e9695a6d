package measure

import (
	"maps"
	"slices"
)

// Counts are numbers of requests by name.
type Counts map[string]int

// Minus takes other counts off; what is not left over is left out.
func (c Counts) Minus(other Counts) Counts {
	left := Counts{}

	for name, n := range c {
		if n > other[name] {
			left[name] = n - other[name]
		}
	}

	return left
}

// Total of all counts.
func (c Counts) Total() int {
	total := 0
	for _, n := range c {
		total += n
	}

	return total
}

// Names of the counts, the highest first.
func (c Counts) Names() []string {
	names := slices.Sorted(maps.Keys(c))
	slices.SortStableFunc(names, func(a, b string) int { return c[b] - c[a] })

	return names
}
