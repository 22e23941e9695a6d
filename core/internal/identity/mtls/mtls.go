package mtls

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Trust says how the two ends of a connection know each other. Trusts compare
// with ==: connections are shared between equal ones only.
type Trust struct {
	// SPIFFE takes both certificates from the Workload API; all but ServerID is
	// then without meaning.
	SPIFFE bool
	// ServerID is the SPIFFE ID that the provider must show; empty means any of
	// the operator's own trust domain.
	ServerID string
	// OwnDomain says that the ID must be of the operator's own trust domain,
	// because a store has named it.
	OwnDomain bool

	// ServerName that the provider's certificate must be for.
	ServerName string
	// Identity that the provider's certificate must carry as a URI name; empty
	// where it is not of the operator's own making.
	Identity string
	// Authorities of the provider's certificate.
	Authorities Authorities
	// Certificate names the Secret with the one that the operator shows; zero
	// means the operator's own.
	Certificate types.NamespacedName

	// Socket is a unix socket: no TLS, but the peer must run as PeerUID.
	Socket bool
	// PeerUID is the user that the provider's process must run as.
	PeerUID int
}

// Authorities that a certificate must chain to. The zero value is the operator's
// own.
type Authorities struct {
	// Bundle in PEM; empty means that it is elsewhere.
	Bundle string
	// Secret and Key name a bundle in a Secret.
	Secret types.NamespacedName
	Key    string
	// System are those of the machine.
	System bool
}

// Base reports whether another trust differs from this one only in what a store
// may choose: the certificate that is shown, or SPIFFE identities.
func (t Trust) Base(other Trust) bool {
	other.Certificate, other.SPIFFE, other.ServerID, other.OwnDomain = t.Certificate, t.SPIFFE, t.ServerID, t.OwnDomain

	return t == other
}

// String says for people who the provider must be.
func (t Trust) String() string {
	switch {
	case t.Socket:
		return fmt.Sprintf("a process of user %d", t.PeerUID)
	case t.SPIFFE && t.ServerID == "":
		return "any SPIFFE ID of the operator's trust domain"
	case t.SPIFFE:
		return t.ServerID
	case t.Identity != "":
		return t.Identity
	default:
		return t.ServerName
	}
}
