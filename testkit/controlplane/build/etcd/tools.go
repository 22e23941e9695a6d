//go:build tools

// Package etcd pins the etcd server that the control plane of the tests is made
// of.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
