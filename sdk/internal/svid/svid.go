package svid

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// firstAnswer bounds the wait for the first SVID.
const firstAnswer = 30 * time.Second

// Source is a server's TLS by SVIDs, which the Workload API renews.
type Source struct {
	svids    *workloadapi.X509Source
	operator spiffeid.ID
}

// Load waits for the first SVID. address is that of the Workload API, operator
// the SPIFFE ID that a caller must show.
func Load(ctx context.Context, address, operator string) (*Source, error) {
	id, err := spiffeid.FromString(operator)
	if err != nil {
		return nil, fmt.Errorf("cannot use --operator-identity %q as a SPIFFE ID: %w", operator, err)
	}

	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()

	svids, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(address)))
	if err != nil {
		return nil, fmt.Errorf("cannot take SVIDs from the Workload API at --spiffe-endpoint-socket %s: %w", address, err)
	}

	return &Source{svids: svids, operator: id}, nil
}

// Config returns the TLS configuration for a listener: it follows the Workload
// API.
func (s *Source) Config() *tls.Config {
	config := tlsconfig.MTLSServerConfig(s.svids, s.svids, tlsconfig.AuthorizeID(s.operator))
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"h2"}
	// A resumed session would outlive the SVIDs of its handshake.
	config.SessionTicketsDisabled = true

	return config
}

// Expires returns when the SVID in use ends; zero where there is none.
func (s *Source) Expires() time.Time {
	own, err := s.svids.GetX509SVID()
	if err != nil || len(own.Certificates) == 0 {
		return time.Time{}
	}

	return own.Certificates[0].NotAfter
}

// Close stops the watch of the Workload API.
func (s *Source) Close() { _ = s.svids.Close() }
