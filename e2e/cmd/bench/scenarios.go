package main

import "context"

const (
	providerVault = "vault"
	providerFake  = "fake"
)

// scenario is one thing to measure.
type scenario struct {
	name  string
	about string
	// long scenarios run only when they are named.
	long bool
	// perStores scenarios run once for every number of stores.
	perStores bool
	provider  string
	run       func(b *bench, ctx context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "sync", about: "first syncs of all objects after a start of the operator", perStores: true, provider: providerVault, run: (*bench).sync},
		{name: "create", about: "first syncs of objects that are created while the operator runs", provider: providerVault, run: (*bench).create},
		{name: "restart", about: "a kill -9 of the operator when everything is in sync", provider: providerVault, run: (*bench).restart},
		{name: "refresh", about: "periodic refreshes that find nothing new", provider: providerVault, run: (*bench).refresh},
		{name: "wrong-token", about: "a Vault that refuses the stores' token for two minutes", provider: providerVault, run: (*bench).wrongToken},
		{name: "memory", about: "5,000 large Secrets that belong to no ExternalSecret (long)", long: true, provider: providerVault, run: (*bench).memory},
		{name: "large", about: "five times the objects on 100 stores (long)", long: true, provider: providerVault, run: (*bench).large},
		{name: "footprint", about: "size, modules and idle memory of the operator and each provider", provider: providerFake, run: (*bench).footprint},
		{name: "slow-store", about: "one slow store among 100 (long)", long: true, provider: providerFake, run: (*bench).slowStore},
		{name: "certificates", about: "ten minutes of refreshes while all certificates are renewed every few seconds (long)", long: true, provider: providerVault, run: (*bench).certificates},
		{name: "first-among-refreshes", about: "new objects while five times the objects are due for a refresh (long)", long: true, provider: providerVault, run: (*bench).firstAmongRefreshes},
	}
}
