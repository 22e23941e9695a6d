package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/pkitest"
	"github.com/external-secrets/eso/sdk/provider"
)

// patience bounds waits that a correct program never sees the end of.
const patience = 20 * time.Second

// canary is part of every secret and credential of these tests. The output of the
// process must not contain it.
const canary = "canary-2f6b"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is what stores of the tests do.
type backend struct {
	construct func(context.Context, provider.Environment) error
	read      func(context.Context, []provider.Read) []provider.Result
	validate  func(context.Context) (provider.Validation, error)
	push      func(context.Context, provider.Push) (provider.Pushed, error)
	remove    func(context.Context, provider.Deletion) (bool, error)
	exists    func(context.Context, string, string) (bool, error)
	watch     func(context.Context, []string, func(provider.Change) error) error

	mu             sync.Mutex
	made, closings int
}

func (b *backend) counts() (made, closings int) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.made, b.closings
}

type store struct{ backend *backend }

func (s *store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return s.backend.read(ctx, reads)
}

func (s *store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	return s.backend.push(ctx, push)
}

func (s *store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	return s.backend.remove(ctx, deletion)
}

func (s *store) Exists(ctx context.Context, key, property string) (bool, error) {
	return s.backend.exists(ctx, key, property)
}

func (s *store) Watch(ctx context.Context, keys []string, tell func(provider.Change) error) error {
	return s.backend.watch(ctx, keys, tell)
}

func (s *store) Validate(ctx context.Context) (provider.Validation, error) {
	return s.backend.validate(ctx)
}

func (s *store) Close(context.Context) error {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()

	s.backend.closings++

	return nil
}

// writeOnly is a store that does not read.
type writeOnly struct{}

func (writeOnly) Validate(context.Context) (provider.Validation, error) {
	return provider.Validation{}, nil
}
func (writeOnly) Close(context.Context) error { return nil }

// provider serves ConfigMaps, because every scheme has those, and Secrets as
// configs of a kind that does not read.
func (b *backend) provider() provider.Provider {
	return provider.Provider{
		Name: "test", Version: "1.2.3", Commit: "abc",
		Kinds: []provider.Kind{
			provider.StoreKind(corev1.AddToScheme, func(ctx context.Context, env provider.Environment, _ *corev1.ConfigMap) (*store, error) {
				b.mu.Lock()
				b.made++
				b.mu.Unlock()

				if b.construct != nil {
					if err := b.construct(ctx, env); err != nil {
						return nil, err
					}
				}

				return &store{b}, nil
			}),
			provider.StoreKind(corev1.AddToScheme, func(context.Context, provider.Environment, *corev1.Secret) (writeOnly, error) {
				return writeOnly{}, nil
			}),
		},
	}
}

// process is a provider that serves on loopback with mutual TLS.
type process struct {
	*backend

	t       *testing.T
	ca      *pkitest.CA
	dir     string
	address string
	log     *journal
	conn    *grpc.ClientConn
	info    pb.ProviderInfoClient
	secrets pb.SecretStoreClient

	stop func()
	done chan error
}

// journal records a log, and notifies goroutines that wait for a line of it.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.text.String()
}

// field of the first line with that message.
func (j *journal) field(message, field string) string {
	for line := range strings.Lines(j.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err == nil && entry["msg"] == message {
			text, _ := entry[field].(string)

			return text
		}
	}

	return ""
}

// objects of the cluster: configs of all names that the tests use.
func objects() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "backend", UID: "config-uid", Generation: 1}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "backend", UID: "config-uid", Generation: 1}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "creds"}, Data: map[string][]byte{"token": []byte(canary)}},
	}
}

// cluster returns a client of a cluster with the tests' objects.
func cluster() client.Client {
	return fake.NewClientBuilder().WithObjects(objects()...).WithInterceptorFuncs(interceptor.Funcs{Create: noToken}).Build()
}

// start serves until the test ends, with defaults for options that are not set.
func start(t *testing.T, b *backend, options Options) *process {
	t.Helper()

	p := &process{backend: b, t: t, ca: pkitest.New(t, "ca"), dir: t.TempDir(), log: &journal{}, done: make(chan error, 1)}
	pkitest.Write(t, p.dir, p.ca.Issue(t, pkitest.Leaf{}), p.ca.PEM)

	options.TLSDir = p.dir
	options.Log = slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.Client = cluster()

	if options.Grace == 0 {
		options.Grace = patience
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	p.address = listener.Addr().String()

	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel

	go func() {
		p.done <- serve(ctx, listener, b.provider(), options)
		close(p.done)
	}()

	p.conn = p.dial(p.ca.Issue(t, pkitest.Leaf{URIs: []string{pb.OperatorIdentity}}))
	p.info, p.secrets = pb.NewProviderInfoClient(p.conn), pb.NewSecretStoreClient(p.conn)

	t.Cleanup(func() {
		_ = p.conn.Close()

		cancel()

		select {
		case err := <-p.done:
			if err != nil {
				t.Errorf("serving ended with: %v", err)
			}
		case <-time.After(patience):
			t.Error("serving did not end")
		}
	})

	return p
}

// noToken is the API server of the tests, for which no token is valid.
func noToken(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
	return nil
}

// dial connects with a client certificate.
func (p *process) dial(pair pkitest.Pair) *grpc.ClientConn {
	p.t.Helper()

	conn, err := grpc.NewClient(p.address,
		grpc.WithTransportCredentials(credentials.NewTLS(clientTLS(p.ca, pair))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		p.t.Fatal(err)
	}

	return conn
}

// clientTLS shows a client certificate.
func clientTLS(ca *pkitest.CA, pair pkitest.Pair) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair.Certificate}, ServerName: "127.0.0.1"}
}

// connect is for calls whose time is too short for a handshake.
func (p *process) connect() {
	p.t.Helper()

	if _, err := p.info.GetInfo(p.context(), &pb.GetInfoRequest{}); err != nil {
		p.t.Fatal(err)
	}
}

// context of a test's calls.
func (p *process) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)

	return ctx
}

// read reads one key.
func (p *process) read(key string) (*pb.SecretResult, error) {
	response, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read(key)}})
	if err != nil {
		return nil, err
	}

	if len(response.GetResults()) != 1 {
		p.t.Fatalf("%d results to one read", len(response.GetResults()))
	}

	return response.GetResults()[0], nil
}

// metrics returns the text that Prometheus would scrape.
func (p *process) metrics() string {
	p.t.Helper()

	_, body := p.get("/metrics")

	return body
}

// get asks the plain HTTP server.
func (p *process) get(path string) (int, string) {
	p.t.Helper()

	await(p.t, "the metrics address is logged", func() bool { return p.log.field("serving", "metrics") != "" })

	request, err := http.NewRequestWithContext(p.context(), http.MethodGet, "http://"+p.log.field("serving", "metrics")+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}

	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	response, err := httpClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()

	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}

	return response.StatusCode, string(body)
}

func callContext() *pb.CallContext {
	return &pb.CallContext{
		RequestId:               "request-1",
		Store:                   &pb.StoreReference{Kind: "SecretStore", Namespace: "team-a", Name: "store", Uid: "store-uid", Generation: 1},
		Config:                  &pb.ConfigReference{ApiVersion: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "backend", Uid: "config-uid", Generation: 1},
		SourceNamespace:         "team-a",
		AuthenticationNamespace: "team-a",
	}
}

func read(key string) *pb.SecretRead {
	return &pb.SecretRead{Id: key, Shape: pb.Shape_SHAPE_VALUE, Key: key, MetadataPolicy: pb.MetadataPolicy_METADATA_POLICY_NONE}
}

// answer makes a read that answers each key on its own.
func answer(one func(provider.Read) provider.Result) func(context.Context, []provider.Read) []provider.Result {
	return func(_ context.Context, reads []provider.Read) []provider.Result {
		results := make([]provider.Result, 0, len(reads))
		for _, r := range reads {
			results = append(results, one(r))
		}

		return results
	}
}

// failure is a call's error as it came over the wire.
type failure struct {
	Code          codes.Code
	Domain        string
	Reason, Scope string
	Retry         time.Duration
}

func failureOf(err error) failure {
	s := status.Convert(err)
	f := failure{Code: s.Code()}

	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			f.Domain, f.Reason, f.Scope = detail.GetDomain(), detail.GetReason(), detail.GetMetadata()[pb.MetadataScope]
		case *errdetails.RetryInfo:
			f.Retry = detail.GetRetryDelay().AsDuration()
		}
	}

	return f
}

// of is a failure that follows the protocol.
func of(code codes.Code, reason, scope string) failure {
	return failure{Code: code, Domain: pb.ErrorDomain, Reason: reason, Scope: scope}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()

	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}

		time.Sleep(time.Millisecond)
	}
}

// served reports whether an address has a listener.
func served(t *testing.T, address string) bool {
	t.Helper()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}

	_ = conn.Close()

	return true
}

// refusedListener fails at once, as one whose socket was taken away.
type refusedListener struct{ net.Listener }

func (refusedListener) Accept() (net.Conn, error) { return nil, errors.New("the socket is closed") }
