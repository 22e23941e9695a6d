// Package controlplane runs a real Kubernetes control plane as processes on
// the loopback interface: etcd, kube-apiserver and kube-controller-manager,
// with TLS, RBAC and ServiceAccount tokens. What owns objects is
// garbage-collected, namespaces delete, tokens are minted and reviewed; there
// are no nodes, so no pod ever runs.
//
// It is for tests and demos. It never touches a cluster that exists already,
// never reads the user's kubeconfig, and never listens on anything but
// loopback. etcd has no authentication: any user of the machine can read
// what a test stores.
//
//test:inputs testkit/controlplane/build/**
package controlplane
