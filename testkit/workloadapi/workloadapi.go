// Package workloadapi is a SPIFFE Workload API for tests: a trust domain whose
// agent gives each workload its SVID at a socket of its own.
package workloadapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
)

// TrustDomain signs the SVIDs of its workloads.
type TrustDomain struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey

	mu      sync.Mutex
	servers []*grpc.Server
}

// New creates a trust domain whose sockets are in a folder.
func New(name, dir string) (*TrustDomain, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot create a key: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{{Scheme: "spiffe", Host: name}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}

	certificate, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}

	return &TrustDomain{dir: dir, certificate: certificate, key: key}, nil
}

// Socket is where Serve gives the workload of a name its SVID; it may be passed to
// the workload before.
func (d *TrustDomain) Socket(name string) string {
	return "unix://" + filepath.Join(d.dir, name+".sock")
}

// Serve gives callers at the socket of a name the SVID with an ID.
func (d *TrustDomain) Serve(name, id string) error {
	svid, err := d.svid(id)
	if err != nil {
		return err
	}

	listener, err := net.Listen("unix", filepath.Join(d.dir, name+".sock"))
	if err != nil {
		return fmt.Errorf("cannot serve the Workload API: %w", err)
	}

	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, &agent{svid: svid})

	d.mu.Lock()
	d.servers = append(d.servers, server)
	d.mu.Unlock()

	go func() { _ = server.Serve(listener) }()

	return nil
}

// Stop ends all sockets.
func (d *TrustDomain) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, server := range d.servers {
		server.Stop()
	}
}

func (d *TrustDomain) svid(id string) (*workload.X509SVID, error) {
	uri, err := url.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("cannot use ID %q: %w", id, err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot create a key: %w", err)
	}

	leaf, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{uri},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, d.certificate, key, d.key)
	if err != nil {
		return nil, err
	}

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}

	return &workload.X509SVID{SpiffeId: id, X509Svid: leaf.Raw, X509SvidKey: der, Bundle: d.certificate.Raw}, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate: %w", err)
	}

	return x509.ParseCertificate(der)
}

// agent serves one workload.
type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	svid *workload.X509SVID
}

// FetchX509SVID gives the SVID, and then nothing new.
func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream workload.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
	if err := stream.Send(&workload.X509SVIDResponse{Svids: []*workload.X509SVID{a.svid}}); err != nil {
		return err
	}

	<-stream.Context().Done()

	return nil
}
