package providerclient

import (
	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
)

// Endpoint is where a provider listens and who it must be. Endpoints compare
// with ==; connections are shared between equal ones only.
type Endpoint struct {
	// Provider is the name of the registration; empty where there is none.
	Provider string
	// Address to dial; it has passed the address policy.
	Address address.Address
	// Trust says how both sides know each other.
	Trust mtls.Trust
	// MaxConcurrent requests in flight to the provider, by whatever trust; 0
	// means 64.
	MaxConcurrent int
	// PerSecond requests on average, likewise; 0 means unlimited.
	PerSecond int
}

// serves reports whether another endpoint is this one as a store may vary it.
func (e Endpoint) serves(other Endpoint) bool {
	if !e.Trust.Base(other.Trust) {
		return false
	}

	other.Trust = e.Trust

	return e == other
}

// served is what limits apply to, whatever identity the operator uses.
type served struct {
	name    string
	address address.Address
	// The limits themselves: changed ones start again.
	maxConcurrent, perSecond int
}

func (e Endpoint) served() served {
	return served{name: e.Provider, address: e.Address, maxConcurrent: e.MaxConcurrent, perSecond: e.PerSecond}
}
