package svid

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/external-secrets/eso/sdk/internal/pkitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operator = "spiffe://corp/operator"

// workloadAPI returns one workload its SVID over a socket, as an agent does.
type workloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	mu      sync.Mutex
	current *workload.X509SVIDResponse
	changed chan struct{}
}

func (w *workloadAPI) FetchX509SVID(_ *workload.X509SVIDRequest, stream workload.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
	for {
		w.mu.Lock()
		current, changed := w.current, w.changed
		w.mu.Unlock()

		if err := stream.Send(current); err != nil {
			return err
		}

		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// set returns the workload another SVID.
func (w *workloadAPI) set(t *testing.T, ca *pkitest.CA, id string) {
	t.Helper()

	der := func(text []byte) []byte {
		block, _ := pem.Decode(text)

		return block.Bytes
	}
	pair := ca.Issue(t, pkitest.Leaf{URIs: []string{id}})

	w.mu.Lock()
	defer w.mu.Unlock()

	w.current = &workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
		SpiffeId: id, X509Svid: der(pair.CertificatePEM), X509SvidKey: der(pair.KeyPEM), Bundle: der(ca.PEM),
	}}}

	if w.changed != nil {
		close(w.changed)
	}

	w.changed = make(chan struct{})
}

func serveWorkloadAPI(t *testing.T, w *workloadAPI) (address string) {
	t.Helper()

	path := filepath.Join(t.TempDir(), "agent.sock")

	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, w)

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)

	return "unix://" + path
}

// Only the operator's SPIFFE ID of the own trust domain is accepted, and an update
// of the Workload API is used at the next handshake.
func TestHandshakes(t *testing.T) {
	ca, foreign := pkitest.New(t, "corp"), pkitest.New(t, "evil")
	api := &workloadAPI{}
	api.set(t, ca, "spiffe://corp/vault")

	source, err := Load(t.Context(), serveWorkloadAPI(t, api), operator)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()

	if left := time.Until(source.Expires()); left <= 0 {
		t.Errorf("the SVID ends in %s", left)
	}

	for _, c := range []struct {
		why    string
		client pkitest.Pair
		limit  uint16
		none   bool
		want   string
	}{
		{why: "the operator", client: ca.Issue(t, pkitest.Leaf{URIs: []string{operator}})},
		{why: "another workload of the trust domain", client: ca.Issue(t, pkitest.Leaf{URIs: []string{"spiffe://corp/evil"}}), want: "unexpected ID"},
		{why: "the operator of another trust domain's authority", client: foreign.Issue(t, pkitest.Leaf{URIs: []string{operator}}), want: "unknown authority"},
		{why: "an expired SVID", client: ca.Issue(t, pkitest.Leaf{URIs: []string{operator}, NotAfter: time.Now().Add(-time.Minute)}), want: "expired"},
		{why: "a certificate without an ID", client: ca.Issue(t, pkitest.Leaf{}), want: "no URI SAN"},
		{why: "no certificate", none: true, want: "certificate"},
		{why: "an old TLS", client: ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}), limit: tls.VersionTLS12, want: "version"},
	} {
		t.Run(c.why, func(t *testing.T) {
			client := &tls.Config{InsecureSkipVerify: true, MaxVersion: c.limit} //nolint:gosec // the server is under test
			if !c.none {
				client.Certificates = []tls.Certificate{c.client.Certificate}
			}

			if _, err := handshake(t, source.Config(), client); (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("err = %v; want %q", err, c.want)
			}
		})
	}

	api.set(t, ca, "spiffe://corp/renewed")

	good := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}).Certificate}} //nolint:gosec // likewise

	var shown string

	for range 200 {
		leaf, err := handshake(t, source.Config(), good)
		if err != nil {
			t.Fatal(err)
		}

		if shown = leaf.URIs[0].String(); shown == "spiffe://corp/renewed" {
			break
		}

		time.Sleep(10 * time.Millisecond)
	}

	if shown != "spiffe://corp/renewed" {
		t.Errorf("the server still shows %s", shown)
	}
}

// handshake returns the server's certificate and the server's error.
func handshake(t *testing.T, server, client *tls.Config) (*x509.Certificate, error) {
	t.Helper()

	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	failed := make(chan error, 1)

	go func() {
		conn, err := listener.Accept()
		if err != nil {
			failed <- err

			return
		}
		defer conn.Close()

		secured, _ := conn.(*tls.Conn)
		failed <- secured.HandshakeContext(context.WithoutCancel(t.Context()))
	}()

	conn, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		return nil, <-failed
	}
	defer conn.Close()

	secured, _ := conn.(*tls.Conn)

	return secured.ConnectionState().PeerCertificates[0], <-failed
}

func TestLoadFails(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()

	if _, err := Load(ctx, "unix://"+filepath.Join(t.TempDir(), "none"), operator); err == nil || !strings.Contains(err.Error(), "--spiffe-endpoint-socket") {
		t.Errorf("err = %v", err)
	}

	if _, err := Load(ctx, "unix:///x", "operator"); err == nil || !strings.Contains(err.Error(), "--operator-identity") {
		t.Errorf("err = %v", err)
	}
}
