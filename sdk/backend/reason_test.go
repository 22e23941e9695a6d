package backend_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/external-secrets/eso/sdk/backend"
)

// Reason does not repeat what a server sends, nor what a name resolves to.
func TestReason(t *testing.T) {
	const canary = "canary-of-the-network"

	fields := backend.Fields{Server: "spec.server", CA: "spec.caBundle"}

	for _, test := range []struct {
		name    string
		err     error
		fields  backend.Fields
		want    string
		lasting bool
	}{
		{"unknown authority", x509.UnknownAuthorityError{}, fields, "its certificate is of an unknown authority: set spec.caBundle", true},
		{"without a field to name", x509.UnknownAuthorityError{}, backend.Fields{}, "its certificate is of an unknown authority", true},
		{"another host", x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{canary}}, Host: "a"}, fields, "its certificate is not for the host of spec.server", true},
		{"expired", x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired, Detail: canary}, fields, "its certificate has expired, or is not valid yet", true},
		{"no TLS", tls.RecordHeaderError{Msg: canary}, fields, "it does not speak TLS", true},
		{"no such host", &net.DNSError{Name: canary, Server: canary, IsNotFound: true}, fields, "no such host", true},
		{"DNS is away", &net.DNSError{Name: canary, Server: canary, IsTimeout: true}, fields, "the host's name cannot be resolved", false},
		{"late", fmt.Errorf("%s: %w", canary, context.DeadlineExceeded), backend.Fields{Late: "10s are over"}, "10s are over", false},
		{"refused", &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, Err: syscall.ECONNREFUSED}, fields, "connection refused", false},
		{"a banner", errors.New(`malformed HTTP status code "` + canary + `"`), fields, "the connection broke, or what came is no answer of HTTP", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, lasting := backend.Reason(fmt.Errorf("%s: %w", canary, test.err), test.fields)
			if text != test.want || lasting != test.lasting || strings.Contains(text, canary) {
				t.Errorf("%q, lasting %t; want %q, %t", text, lasting, test.want, test.lasting)
			}
		})
	}
}
