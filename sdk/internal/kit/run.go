package kit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kit/internal/apiserver"
)

const (
	kindSecretStore        = "SecretStore"
	kindClusterSecretStore = "ClusterSecretStore"

	// connectTimeout bounds the first call.
	connectTimeout = 15 * time.Second
	// testTimeout bounds one test.
	testTimeout = 60 * time.Second
	// maxAnswer is what the kit receives at most: more than any provider may
	// send, so that the kit detects answers that are too large.
	maxAnswer = 64 << 20
)

// Options of a run.
type Options struct {
	// Only runs the tests whose id matches; nil runs all.
	Only *regexp.Regexp
	// Progress gets a line per test; nil discards it.
	Progress io.Writer
	// Output gets what the provider prints, when the kit starts it; nil
	// discards it.
	Output io.Writer
	// CommandLine of the kit, for the report.
	CommandLine []string
	// Version of the kit, for the report.
	Version string
	// Dial connects to a provider that is served in this process, in place of the
	// target's address, which has to be empty, as does its command; nil uses these.
	// Such a connection has no TLS.
	Dial func(ctx context.Context) (net.Conn, error)
}

// memoryAddress is the address of a provider that Options.Dial connects to. It is
// tested as one at a unix socket, which has no TLS either.
const memoryAddress = "unix:///memory"

// run is one run of the tests.
type run struct {
	target  Target
	options Options
	pki     *authority
	foreign *authority
	// certificate of the operator; nil over a socket.
	certificate *tls.Certificate
	process     *process
	apiServer   *apiserver.Server
	conn        *grpc.ClientConn
	record      *record
	info        *pb.GetInfoResponse
	kind        *pb.Kind
	call        *pb.CallContext
	// broken are claims that proved false: their other tests are skipped.
	broken map[pb.Capability]bool

	prefix string
	calls  atomic.Int64
	ending func() *ending
}

// Run tests a target. It returns an error when there is nothing to report: the
// target cannot be used, or the provider cannot be reached at all.
func Run(ctx context.Context, target Target, options Options) (Report, error) {
	if options.Dial != nil {
		if target.Address != "" || target.Command != nil {
			return Report{}, errors.New("cannot use the target: address and command: leave them out, the provider is in this process")
		}

		target.Address = memoryAddress
	}

	if errs := target.check(); len(errs) > 0 {
		return Report{}, fmt.Errorf("cannot use the target: %w", errors.Join(errs...))
	}

	tests := slices.DeleteFunc(Tests(), func(test Test) bool { return options.Only != nil && !options.Only.MatchString(test.ID) })
	if len(tests) == 0 {
		return Report{}, fmt.Errorf("no test has an id that matches %q", options.Only)
	}

	if options.Progress == nil {
		options.Progress = io.Discard
	}

	if options.Output == nil {
		options.Output = io.Discard
	}

	began := time.Now()
	r := &run{target: target, options: options, broken: map[pb.Capability]bool{}, prefix: fmt.Sprintf("conformance-%x", began.UnixNano())}
	r.record = newRecord(r.target.canaries())
	r.ending = sync.OnceValue(func() *ending { return r.end(ctx) })

	defer r.close()

	if err := r.open(ctx); err != nil {
		return Report{}, err
	}

	report := r.begin(began)

	for _, test := range tests {
		result := r.one(ctx, test)
		report.Tests = append(report.Tests, result)

		fmt.Fprintln(options.Progress, result.line())

		if err := ctx.Err(); err != nil {
			return Report{}, fmt.Errorf("cannot go on: %w", err)
		}
	}

	report.conclude(time.Since(began))

	return report, nil
}

// one runs one test, where it applies.
func (r *run) one(ctx context.Context, test Test) Result {
	began := time.Now()
	t := &T{run: r, test: test}
	outcome, message := r.applies(test.Needs)

	if outcome == "" {
		outcome, message = t.perform(ctx)
	}

	return Result{
		ID: test.ID, Why: test.Why, Outcome: outcome, Message: r.record.veil(message),
		Seconds: time.Since(began).Seconds(), RequestIDs: t.requestIDs, capabilities: append(slices.Clone(test.Needs.Capabilities), test.Needs.Absent),
	}
}

// applies returns why a test does not apply or cannot run; empty if it can.
func (r *run) applies(needs Needs) (Outcome, string) {
	for _, capability := range needs.Capabilities {
		switch absent := r.target.absent(capability); {
		case !r.claimed(capability):
			return Skipped, "the provider does not claim " + short(capability)
		case absent != "":
			return NotExercised, "the store under test cannot: " + absent
		case r.broken[capability]:
			return Skipped, fmt.Sprintf("the claim of %s is false: see claims.%s-is-served", short(capability), lower(capability))
		}
	}

	unix := strings.HasPrefix(r.target.Address, "unix://")

	switch {
	case needs.Absent != pb.Capability_CAPABILITY_UNSPECIFIED && r.target.absent(needs.Absent) == "":
		return Skipped, "the target does not name " + short(needs.Absent) + " as absent"
	case needs.Store && r.kind.GetService() == pb.Service_SERVICE_GENERATOR:
		return Skipped, "the kind is a generator, which has no store"
	case needs.TLS && unix:
		return Skipped, "the connection has no TLS: a unix socket, or memory"
	case needs.Writes && r.target.Profile != Full:
		return Skipped, "the profile is read-only; profile: full allows it"
	case needs.Command && r.target.Command == nil:
		return NotExercised, "the kit has not started the provider; set command, so that the kit can stop it"
	case needs.Authority && (r.pki == nil || r.pki.key == nil):
		return NotExercised, "the kit cannot issue certificates; set tls.caKeyFile of a test CA, or command without tls"
	}

	for _, fixture := range needs.Fixtures {
		if !fixture.given(&r.target) {
			return NotExercised, "give " + string(fixture)
		}
	}

	return "", ""
}

// open starts the provider if the target has a command, connects, and calls GetInfo.
func (r *run) open(ctx context.Context) error {
	r.call = contextOf(&r.target)

	if err := r.secure(); err != nil {
		return err
	}

	if r.target.Command != nil {
		if err := r.start(ctx); err != nil {
			return err
		}
	}

	var err error
	if r.conn, err = r.dial(); err != nil {
		return err
	}

	if r.process != nil {
		if err := r.ready(ctx); err != nil {
			return err
		}
	}

	calling, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	r.info, err = pb.NewProviderInfoClient(r.conn).GetInfo(calling, &pb.GetInfoRequest{})
	if err != nil {
		return fmt.Errorf("cannot get info of the provider at %s: %w; check the address, and whether the provider accepts the operator's certificate", r.target.Address, err)
	}

	for _, kind := range r.info.GetKinds() {
		if kind.GetApiVersion() == r.target.Config.APIVersion && kind.GetKind() == r.target.Config.Kind {
			r.kind = kind
		}
	}

	if r.kind == nil {
		return fmt.Errorf("cannot test %s of %s: the provider %q does not serve it; config names another kind", r.target.Config.Kind, r.target.Config.APIVersion, r.info.GetName())
	}

	for name := range r.target.Absent {
		if !r.claimed(pb.Capability_CAPABILITY_WATCH) {
			return fmt.Errorf("cannot use the target: absent.%s: %s does not claim it with any store; leave it out", name, r.target.Config.Kind)
		}
	}

	return nil
}

// secure issues or reads certificates.
func (r *run) secure() error {
	if strings.HasPrefix(r.target.Address, "unix://") {
		return nil
	}

	var err error

	if r.foreign, err = newAuthority("foreign"); err != nil {
		return err
	}

	if r.target.TLS == nil {
		if r.pki, err = newAuthority("conformance"); err != nil {
			return err
		}
	} else if r.pki, err = readAuthority(r.target.TLS.CAFile, r.target.TLS.CAKeyFile); err != nil {
		return err
	}

	if r.pki.key == nil {
		pair, err := tls.LoadX509KeyPair(r.target.TLS.CertFile, r.target.TLS.KeyFile)
		if err != nil {
			return fmt.Errorf("cannot use tls.certFile and tls.keyFile: %w", err)
		}

		r.certificate = &pair

		return nil
	}

	pair, err := r.pki.issue(leaf{name: "operator", uri: r.identity(), client: true})
	if err != nil {
		return err
	}

	r.certificate = &pair.certificate

	return nil
}

// identity of the operator.
func (r *run) identity() string {
	if r.target.TLS != nil && r.target.TLS.OperatorIdentity != "" {
		return r.target.TLS.OperatorIdentity
	}

	return pb.OperatorIdentity
}

// clientTLS is that of the operator; other certificates are a wrong peer's.
func (r *run) clientTLS(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: r.pki.pool(), ServerName: r.serverName(), Certificates: certificates, NextProtos: []string{"h2"}}
}

func (r *run) serverName() string {
	if r.target.ServerName != "" {
		return r.target.ServerName
	}

	return hostOf(r.target.Address)
}

// dial connects as the operator does.
func (r *run) dial() (*grpc.ClientConn, error) {
	if r.certificate == nil {
		return r.dialWith(insecure.NewCredentials())
	}

	return r.dialWith(credentials.NewTLS(r.clientTLS(*r.certificate)))
}

func (r *run) dialWith(transport credentials.TransportCredentials) (*grpc.ClientConn, error) {
	address := r.target.Address
	if !strings.HasPrefix(address, "unix://") {
		address = "passthrough:///" + address
	}

	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithChainUnaryInterceptor(r.record.unary), grpc.WithChainStreamInterceptor(r.record.stream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxAnswer)),
	}

	if r.options.Dial != nil {
		address = "passthrough:///memory"
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.options.Dial(ctx) }))
	}

	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot use the address %q: %w", r.target.Address, err)
	}

	return conn, nil
}

// ready waits until a provider that was just started serves.
func (r *run) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.target.Command.StartTimeout.or(startTimeout))
	defer cancel()

	for {
		response, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(false))
		if err == nil && response.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			// Answers during startup are not evaluated.
			r.record.forget()

			return nil
		}

		select {
		case <-r.process.done:
			return fmt.Errorf("cannot test %s: it exited before it served: %w; see its output", r.process.name, r.process.ended())
		case <-ctx.Done():
			return fmt.Errorf("cannot test %s: it does not serve at %s in time: %w", r.process.name, r.target.Address, err)
		case <-time.After(20 * time.Millisecond):
		}

		// gRPC increases the delay between its attempts.
		r.conn.ResetConnectBackoff()
	}
}

func (r *run) close() {
	if r.conn != nil {
		_ = r.conn.Close()
	}

	if r.process != nil {
		r.process.stop()
	}

	if r.apiServer != nil {
		r.apiServer.Stop()
	}
}

// contextOf is the call context of a target, without a request id.
func contextOf(target *Target) *pb.CallContext {
	namespace := target.Config.Namespace

	store := StoreReference{Kind: kindSecretStore, Namespace: namespace, Name: "conformance", UID: "conformance", Generation: 1}
	if target.Store != nil {
		store = *target.Store
	}

	return &pb.CallContext{
		Store:                   &pb.StoreReference{Kind: store.Kind, Namespace: store.Namespace, Name: store.Name, Uid: store.UID, Generation: store.Generation},
		Config:                  target.Config.wire(),
		SourceNamespace:         either(target.SourceNamespace, namespace),
		AuthenticationNamespace: either(target.AuthenticationNamespace, namespace),
	}
}

func either(text, otherwise string) string {
	if text == "" {
		return otherwise
	}

	return text
}

// requestID is a new one.
func (r *run) requestID() string { return fmt.Sprintf("%s-%d", r.prefix, r.calls.Add(1)) }

// generates are the capabilities of a generator's kind.
func generates(capability pb.Capability) bool {
	return capability == pb.Capability_CAPABILITY_GENERATE || capability == pb.Capability_CAPABILITY_CLEANUP
}

// claimed reports whether the kind under test claims a capability. Credentials
// may be generated by another kind, which the fixture names.
func (r *run) claimed(capability pb.Capability) bool {
	if slices.Contains(r.kind.GetCapabilities(), capability) {
		return true
	}

	if !generates(capability) {
		return false
	}

	if g := r.target.Fixtures.Generator; g != nil && g.Config != nil {
		return slices.ContainsFunc(r.info.GetKinds(), func(kind *pb.Kind) bool {
			return kind.GetApiVersion() == g.Config.APIVersion && kind.GetKind() == g.Config.Kind && slices.Contains(kind.GetCapabilities(), capability)
		})
	}

	// Without a fixture for the kind, any generator of the provider counts.
	return slices.ContainsFunc(r.info.GetKinds(), func(kind *pb.Kind) bool { return slices.Contains(kind.GetCapabilities(), capability) })
}

// short is a capability without its prefix, as READ; lower is so in an id.
func short(capability pb.Capability) string {
	return strings.TrimPrefix(capability.String(), "CAPABILITY_")
}

func lower(capability pb.Capability) string { return strings.ToLower(short(capability)) }

// transportCodes are codes that gRPC itself fails calls with, on either side.
func transportCodes() []codes.Code {
	return []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unimplemented}
}
