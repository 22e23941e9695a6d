package main

import "time"

// The targets. Those that a machine influences hold for two cores or more.
const (
	// targetShare of what the control plane allows, in percent: the operator
	// performs a third write, and shares the machine with provider and Vault.
	targetShare = 60
	// targetRequests of the API server per first sync: the target, the status,
	// an event, and a little for stores and registrations.
	targetRequests = 3.2
	// targetRefreshRequests of the API server per refresh: the status.
	targetRefreshRequests = 1.05
	// targetPeak memory of the operator with 2,000 objects, in MiB.
	targetPeak = 120
	// targetLargePeak with 10,000.
	targetLargePeak = 300
	// targetGrowth of the operator's memory by Secrets that are not its own, in
	// MiB.
	targetGrowth = 10
	// targetFirst is the 99th percentile from an object's creation to its being
	// Ready while refreshes are due.
	targetFirst = 5 * time.Second
	// targetSlower is how much a slow store may add to the 99th percentile of
	// the others, in percent.
	targetSlower = 10
)
