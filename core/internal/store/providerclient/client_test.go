package providerclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refused stands for the operator's certificate being refused.
const refused = "refused"

const identity = "spiffe://external-secrets.io/provider/test"

// ca signs the certificates of a test.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()

	c := &ca{}
	pair := c.issue(t, func(template *x509.Certificate) {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage = x509.KeyUsageCertSign
	})

	var ok bool
	if c.key, ok = pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
		t.Fatal("no ECDSA key")
	}

	c.cert = pair.Leaf

	return c
}

func (c *ca) issue(t *testing.T, edit func(*x509.Certificate)) *tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	uri, err := url.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, URIs: []*url.URL{uri},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	edit(template)

	parent, signer := template, key
	if c.cert != nil {
		parent, signer = c.cert, c.key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)

	return pool
}

// own is the operator's side of TLS.
type own struct {
	cert *tls.Certificate
	pool *x509.CertPool
}

func (o own) ClientTLS(context.Context) (*tls.Certificate, *x509.CertPool, error) {
	return o.cert, o.pool, nil
}

// provider answers as a test says.
type provider struct {
	pb.UnimplementedProviderInfoServer
	pb.UnimplementedSecretStoreServer

	info func() (*pb.GetInfoResponse, error)
	read func(*pb.GetSecretsRequest) (*pb.GetSecretsResponse, error)
	// contextual reads in place of read, where a test looks at the call itself.
	contextual func(context.Context, *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error)
}

func (p *provider) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return p.info()
}

func (p *provider) GetSecrets(ctx context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	if p.contextual != nil {
		return p.contextual(ctx, request)
	}

	return p.read(request)
}

// serve serves a provider over the wire and gives its endpoint.
func serve(t *testing.T, config *tls.Config, p *provider) Endpoint {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	config.NextProtos = []string{"h2"}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxSendMsgSize(64<<20))
	pb.RegisterProviderInfoServer(server, p)
	pb.RegisterSecretStoreServer(server, p)

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)

	a, err := address.Parse(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	return Endpoint{Address: a, Trust: mtls.Trust{ServerName: "127.0.0.1", Identity: identity}}
}

// trusted serves a provider that is who it should be, and gives a client.
func trusted(t *testing.T, p *provider) *Client {
	t.Helper()

	c := newCA(t)
	endpoint := serve(t, &tls.Config{Certificates: []tls.Certificate{*c.issue(t, func(*x509.Certificate) {})}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool()}, p)

	return dial(t, own{c.issue(t, func(*x509.Certificate) {}), c.pool()}, endpoint)
}

func dial(t *testing.T, mine mtls.Own, endpoint Endpoint) *Client {
	t.Helper()

	pool := NewPool(Options{Credentials: mtls.NewSource(mtls.Options{Own: mine})})
	t.Cleanup(pool.Close)

	client, err := pool.Client(endpoint, token.Identity{})
	if err != nil {
		t.Fatal(err)
	}

	return client
}

func value(id, v string) *pb.SecretResult {
	return &pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Value{Value: []byte(v)}}
}

func mapped(id string, keys ...string) *pb.SecretResult {
	m := &pb.SecretMap{}
	for _, key := range keys {
		m.Entries = append(m.Entries, &pb.SecretEntry{Key: key, Value: []byte{0, 0xff}})
	}

	return &pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Map{Map: m}}
}

func TestReadMatchesAnswersToQuestions(t *testing.T) {
	t.Parallel()

	client := trusted(t, &provider{read: func(request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
		// In another order than asked.
		return &pb.GetSecretsResponse{Results: []*pb.SecretResult{
			mapped(request.GetReads()[1].GetId(), "k"), value(request.GetReads()[0].GetId(), "\x00v"),
			{Id: request.GetReads()[2].GetId(), Outcome: &pb.SecretResult_Error{Error: &pb.Error{Code: 5, Reason: "NOT_FOUND", Message: "no\nsuch", RetryAfter: durationpb.New(time.Minute)}}},
		}}, nil
	}})

	got, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "a"}}, {Read: store.Read{Key: "b", Map: true}}, {Read: store.Read{Key: "c"}}})
	if err != nil {
		t.Fatal(err)
	}

	requestID := got[2].Err.RequestID
	want := []store.Result{
		{Value: []byte("\x00v")}, {Map: map[string][]byte{"k": {0, 0xff}}},
		{Err: &store.Error{Code: codes.NotFound, Reason: "NOT_FOUND", Message: "no such", Item: true, RetryAfter: time.Minute, RequestID: requestID}},
	}

	if diff := cmp.Diff(want, got); diff != "" || requestID == "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}

	if !got[2].Err.NotFound() {
		t.Error("a proven absence is not taken for one")
	}
}

// A batch is cut to what the provider takes, and put together again.
func TestReadCutsBatches(t *testing.T) {
	t.Parallel()

	var sizes []int

	client := trusted(t, &provider{
		info: func() (*pb.GetInfoResponse, error) {
			return &pb.GetInfoResponse{Name: "test", ProtocolVersions: []string{pb.ProtocolVersion}, Kinds: []*pb.Kind{{ApiVersion: "v", Kind: "K"}}, Limits: &pb.Limits{MaxBatchSize: 2}}, nil
		},
		read: func(request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
			sizes = append(sizes, len(request.GetReads()))
			response := &pb.GetSecretsResponse{}

			for _, read := range request.GetReads() {
				response.Results = append(response.Results, value(read.GetId(), read.GetKey()))
			}

			return response, nil
		},
	})

	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}

	got, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "a"}}, {Read: store.Read{Key: "b"}}, {Read: store.Read{Key: "c"}}})
	if err != nil || len(got) != 3 || string(got[2].Value) != "c" {
		t.Errorf("results: %v, %v", got, err)
	}

	if diff := cmp.Diff([]int{2, 1}, sizes); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func TestReadDistrustsAnswers(t *testing.T) {
	t.Parallel()

	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = strings.Repeat("k", i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
	}

	for _, c := range []struct {
		why     string
		answers []*pb.SecretResult
		want    string
	}{
		{"fewer answers than questions", nil, "0 results to 2 reads"},
		{"more answers than questions", []*pb.SecretResult{value("0", ""), mapped("1"), value("2", "")}, "3 results to 2 reads"},
		{"an answer to no question", []*pb.SecretResult{value("0", ""), mapped("7")}, `id "7"`},
		{"an id that is no number", []*pb.SecretResult{value("0", ""), mapped("../../x")}, `id "../../x"`},
		{"another spelling of an id", []*pb.SecretResult{value("0", ""), mapped("01")}, `id "01"`},
		{"two answers to one question", []*pb.SecretResult{value("0", ""), value("0", "")}, `id "0"`},
		{"a map where a value was asked for", []*pb.SecretResult{mapped("0"), mapped("1")}, "a map to a read of a value"},
		{"a value where a map was asked for", []*pb.SecretResult{value("0", ""), value("1", "")}, "a value to a read of a map"},
		{"no outcome", []*pb.SecretResult{value("0", ""), {Id: "1"}}, "without an outcome"},
		{"not modified, where no revision was sent", []*pb.SecretResult{value("0", ""), {Id: "1", Outcome: &pb.SecretResult_NotModified{NotModified: &pb.NotModified{}}}}, "which was not sent"},
		{"one key twice", []*pb.SecretResult{value("0", ""), mapped("1", "k", "k")}, `the key "k" twice`},
		{"too many keys", []*pb.SecretResult{value("0", ""), mapped("1", many...)}, "more than 10000"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			client := trusted(t, &provider{read: func(*pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
				return &pb.GetSecretsResponse{Results: c.answers}, nil
			}})

			_, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "a"}}, {Read: store.Read{Key: "b", Map: true}}})

			typed, ok := errors.AsType[*store.Error](err)
			if !ok || !typed.Breach || !strings.Contains(typed.Message, c.want) {
				t.Errorf("err = %v; want %q", err, c.want)
			}
		})
	}

	t.Run("an error that is none", func(t *testing.T) {
		t.Parallel()

		for _, code := range []int32{0, -1, 17, 1 << 30} {
			if e := itemError("id", &pb.Error{Code: code}); !e.Breach || e.NotFound() {
				t.Errorf("code %d is taken for %v", code, e)
			}
		}
	})
}

func TestErrorsKeepWhatTheyMean(t *testing.T) {
	t.Parallel()

	detailed := func(code codes.Code, scope, domain string) error {
		s, err := status.New(code, "what\x00 happened").WithDetails(
			&errdetails.ErrorInfo{Domain: domain, Reason: "WHY", Metadata: map[string]string{"scope": scope}},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(100 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}

		return s.Err()
	}

	for _, c := range []struct {
		why  string
		err  error
		want *store.Error
	}{
		{
			"code, reason, scope and pause cross the wire, the pause bounded", detailed(codes.ResourceExhausted, pb.ScopeStore, pb.ErrorDomain),
			&store.Error{Code: codes.ResourceExhausted, Reason: "WHY", Message: "what  happened", RetryAfter: time.Hour},
		},
		{
			"an item's error", detailed(codes.NotFound, pb.ScopeItem, pb.ErrorDomain),
			&store.Error{Code: codes.NotFound, Reason: "WHY", Message: "what  happened", RetryAfter: time.Hour, Item: true},
		},
		{
			"a NotFound that a proxy or a router made proves nothing", detailed(codes.NotFound, pb.ScopeItem, "elsewhere.example.com"),
			&store.Error{Code: codes.NotFound, RetryAfter: time.Hour, Message: "the provider at dns:///host:1 failed: what  happened"},
		},
		{
			"a bare Unimplemented means another protocol", status.Error(codes.Unimplemented, "unknown service"),
			&store.Error{Code: codes.Unimplemented, Message: "the provider at dns:///host:1 does not serve protocol v2alpha1: unknown service"},
		},
		{
			"a deadline", context.DeadlineExceeded,
			&store.Error{Code: codes.DeadlineExceeded, Message: "the provider at dns:///host:1 did not answer in time"},
		},
		{
			"gRPC's wrapping comes off", status.Error(codes.Unavailable, `max retries exhausted: failed after 4 attempts: rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: x509: the certificate of \"a\" is not for \"b\""`),
			&store.Error{Code: codes.Unavailable, Untrusted: true, Message: `the provider at dns:///host:1 and the operator do not trust each other: authentication handshake failed: x509: the certificate of "a" is not for "b"`},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got := callError(Endpoint{Address: address.Address{Host: "host", Port: 1}}, "", c.err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Neither side talks to a peer that is not who it should be.
func TestWrongPeers(t *testing.T) {
	t.Parallel()

	c, other := newCA(t), newCA(t)
	good := c.issue(t, func(*x509.Certificate) {})
	info := &provider{info: func() (*pb.GetInfoResponse, error) {
		return &pb.GetInfoResponse{Name: "test", ProtocolVersions: []string{"v9"}}, nil
	}}
	server := func(cert *tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool()}
	}

	for _, test := range []struct {
		why    string
		server *tls.Config
		client own
		want   string
	}{
		{"the right peer is accepted", server(good), own{good, c.pool()}, ""},
		{"an unknown authority", server(other.issue(t, func(*x509.Certificate) {})), own{good, c.pool()}, "signed by unknown authority"},
		{"an expired certificate", server(c.issue(t, func(x *x509.Certificate) { x.NotAfter = time.Now().Add(-time.Minute) })), own{good, c.pool()}, "expired"},
		{"a certificate for another host", server(c.issue(t, func(x *x509.Certificate) { x.IPAddresses = nil })), own{good, c.pool()}, "cannot validate certificate for 127.0.0.1"},
		{"another provider's certificate", server(c.issue(t, func(x *x509.Certificate) { x.URIs = nil })), own{good, c.pool()}, `is not for "spiffe://external-secrets.io/provider/test"`},
		{"a certificate that is not a server's", server(c.issue(t, func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })), own{good, c.pool()}, "incompatible key usage"},
		{"an operator that the provider does not know", server(good), own{other.issue(t, func(*x509.Certificate) {}), c.pool()}, refused},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{*good}, MaxVersion: tls.VersionTLS12}, own{good, c.pool()}, "protocol version"},                               //nolint:gosec // it must be refused
		{"TLS 1.1", &tls.Config{Certificates: []tls.Certificate{*good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, own{good, c.pool()}, "protocol version"}, //nolint:gosec // likewise
	} {
		t.Run(test.why, func(t *testing.T) {
			t.Parallel()

			_, err := dial(t, test.client, serve(t, test.server, info)).Info(t.Context())
			if test.want == "" {
				if err != nil {
					t.Errorf("err = %v", err)
				}

				return
			}

			typed, ok := errors.AsType[*store.Error](err)
			if ok && test.want == refused {
				// Whether the alert or the closing arrives first is not ours.
				if !typed.Untrusted && !strings.Contains(typed.Message, "may refuse the operator's certificate") {
					t.Errorf("err = %v", err)
				}

				return
			}

			if !ok || !typed.Untrusted || !strings.Contains(typed.Message, test.want) {
				t.Errorf("err = %#v; want %q", err, test.want)
			}
		})
	}

	t.Run("a provider without TLS", func(t *testing.T) {
		t.Parallel()

		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		plain := grpc.NewServer()
		pb.RegisterProviderInfoServer(plain, info)

		go func() { _ = plain.Serve(listener) }()

		t.Cleanup(plain.Stop)

		a, err := address.Parse(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := dial(t, own{good, c.pool()}, Endpoint{Address: a, Trust: mtls.Trust{ServerName: "127.0.0.1", Identity: identity}}).Info(t.Context()); err == nil {
			t.Error("the operator fell back to plain text")
		}
	})
}

// Connections are shared between equal endpoints only, and closed when no
// registration or store refers to them any more.
func TestPoolKeepsIdentitiesApart(t *testing.T) {
	t.Parallel()

	now := time.Now()
	pool := NewPool(Options{Now: func() time.Time { return now }})

	defer pool.Close()

	a := Endpoint{Address: address.Address{Host: "127.0.0.1", Port: 1}, Trust: mtls.Trust{ServerName: "a", Identity: "a"}}
	b := a
	b.Trust.Identity = "b"
	own := a
	own.Trust.Certificate.Name = "mine"

	dialled := func(endpoint Endpoint, who token.Identity) *connection {
		t.Helper()

		client, err := pool.Client(endpoint, who)
		if err != nil {
			t.Fatal(err)
		}

		return client.conn
	}

	var nobody token.Identity

	one, two, mine := dialled(a, nobody), dialled(b, nobody), dialled(own, nobody)
	if one == two || one == mine || one != dialled(a, nobody) {
		t.Error("the same address with another identity shares a connection, or the same does not")
	}

	if one.bounds != mine.bounds {
		t.Error("who shows another certificate has limits of its own")
	}

	if one != dialled(a, token.Identity{Name: "reader", Audience: "a"}) {
		t.Error("a token needs a connection of its own")
	}

	pool.Retain([]Endpoint{a})

	if dialled(own, nobody) != mine || dialled(a, nobody) != one {
		t.Error("a connection that is in use was closed")
	}

	if dialled(b, nobody) == two {
		t.Error("a connection without a registration was kept")
	}

	now = now.Add(idle)

	pool.Retain([]Endpoint{a})

	if dialled(own, nobody) == mine {
		t.Error("a store's own connection is kept although it is unused")
	}

	if dialled(a, nobody) != one {
		t.Error("a registration's connection was closed although it is registered")
	}
}

// tokens gives a token, or fails.
type tokens struct {
	err       error
	forgotten atomic.Int32
}

func (s *tokens) Token(_ context.Context, who token.Identity) (string, error) {
	return "token-of-" + who.Name, s.err
}

func (s *tokens) Forget(_ token.Identity, refused string) {
	if refused == "token-of-reader" {
		s.forgotten.Add(1)
	}
}

// The token of the store's ServiceAccount goes with each call, over TLS only.
func TestCallsCarryTokens(t *testing.T) {
	t.Parallel()

	var carried []string

	c := newCA(t)
	good := c.issue(t, func(*x509.Certificate) {})
	refusing := false
	p := &provider{contextual: func(ctx context.Context, _ *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
		carried = metadata.ValueFromIncomingContext(ctx, pb.TokenMetadata)

		if refusing {
			s, err := status.New(codes.Unauthenticated, "no").WithDetails(&errdetails.ErrorInfo{Domain: pb.ErrorDomain, Reason: pb.ReasonCallerRefused})
			if err != nil {
				return nil, err
			}

			return nil, s.Err()
		}

		return &pb.GetSecretsResponse{Results: []*pb.SecretResult{value("0", "v")}}, nil
	}}
	endpoint := serve(t, &tls.Config{Certificates: []tls.Certificate{*good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool()}, p)

	s := &tokens{}
	pool := NewPool(Options{Credentials: mtls.NewSource(mtls.Options{Own: own{good, c.pool()}}), Tokens: s})
	t.Cleanup(pool.Close)

	who := token.Identity{Namespace: "ns", Name: "reader", Audience: "a"}

	client, err := pool.Client(endpoint, who)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "k"}}}); err != nil || !slices.Equal(carried, []string{"Bearer token-of-reader"}) {
		t.Errorf("carried %q, %v", carried, err)
	}

	refusing = true

	if _, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "k"}}}); err == nil || s.forgotten.Load() != 1 {
		t.Errorf("a token that was refused is kept: %v", err)
	}

	s.err, carried = errors.New("cannot get a token"), nil

	if _, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "k"}}}); err == nil || !strings.Contains(err.Error(), "cannot get a token") || carried != nil {
		t.Errorf("err = %v; carried %q", err, carried)
	}

	plain := Endpoint{Address: address.Address{Path: "/run/x.sock"}, Trust: mtls.Trust{Socket: true}}
	if _, err := pool.Client(plain, who); err == nil || !strings.Contains(err.Error(), "tokens travel over TLS only") {
		t.Errorf("err = %v", err)
	}
}

func TestLimitsHoldBack(t *testing.T) {
	t.Parallel()

	pool := NewPool(Options{})
	defer pool.Close()

	client, err := pool.Client(Endpoint{Address: address.Address{Host: "127.0.0.1", Port: 1}, MaxConcurrent: 1}, token.Identity{})
	if err != nil {
		t.Fatal(err)
	}

	release, err := client.conn.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()

	if _, err := client.conn.acquire(ctx); err == nil || !strings.Contains(err.Error(), "limit of concurrent requests") {
		t.Errorf("err = %v", err)
	}

	release()

	if release, err = client.conn.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}

	release()
}
