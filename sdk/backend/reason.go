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

// Fields are the fields of a config that a reason names, as the place to fix it.
// Each may be empty.
type Fields struct {
	// Server is the field with the host, CA the one with the authorities.
	Server, CA string
	// Late is the reason of a timeout; default is "it takes too long".
	Late string
}

// Reason returns a fixed text for why a backend did not respond, and whether the
// failure is permanent. The error's own text may quote data of the server and the
// addresses of its name. The author of a config, and thus of the server's address,
// could use them to explore the provider's network.
func Reason(err error, fields Fields) (text string, permanent bool) {
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
		// The text of a TLS alert is one of a fixed list.
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
