package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// Fields are those of the config that a reason can name, so that its reader
// knows what to change. Each may be empty.
type Fields struct {
	// Server is where the host stands, CA what names authorities.
	Server, CA string
	// Late is said of a time-out; default "it takes too long".
	Late string
}

// Reason says in fixed words why a backend gave no answer, and whether a moment
// later would be the same. The libraries' own words quote what came in place of
// an answer, and the addresses that names lead to: a config's author, who chooses
// the server, could read the provider's network by them.
func Reason(err error, fields Fields) (text string, lasting bool) {
	var (
		dns     *net.DNSError
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		op      *net.OpError
		errno   syscall.Errno
		network net.Error
	)

	switch {
	case errors.As(err, &unknown):
		if fields.CA == "" {
			return "its certificate is of an unknown authority", true
		}

		return "its certificate is of an unknown authority: set " + fields.CA, true
	case errors.As(err, &host):
		if fields.Server == "" {
			return "its certificate is not for this host", true
		}

		return "its certificate is not for the host of " + fields.Server, true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet", true
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "its certificate cannot be verified", true
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak TLS", true
	case errors.As(err, &op) && op.Op == "remote error":
		// An alert of TLS, of a list that the library has.
		return "it ends the TLS handshake: " + op.Err.Error(), true
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host", true
	case errors.As(err, &dns):
		return "the host's name cannot be resolved", false
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		if fields.Late != "" {
			return fields.Late, false
		}

		return "it takes too long", false
	case errors.As(err, &errno):
		return errno.Error(), false
	default:
		return "the connection broke, or what came is no answer of HTTP", false
	}
}
