// Package installation runs the product as its users do, but for the kubelet:
// a control plane, the operator and providers, each a process of its own under
// its own ServiceAccount with the rights that its manifests list, talking gRPC
// with mutual TLS on loopback. Tests and the demo are built on it.
//
//test:inputs api/crds/* core/config/* */*/metadata.yaml
//test:programs core/cmd/external-secrets
package installation
