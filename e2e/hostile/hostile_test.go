package hostile

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"

	"github.com/external-secrets/eso/e2e/measure"
)

const (
	// calmFor and troubleFor are how long the others are watched without and with
	// what harms them.
	calmFor    = 3 * time.Second
	troubleFor = 6 * time.Second
	// away is how long a provider is away; awayVariable sets another, as a Go
	// duration.
	away         = 10 * time.Second
	awayVariable = "EXTERNAL_SECRETS_E2E_AWAY"
	// recovery is within what a store must work again: the longest pause of its
	// circuit, and a try.
	recovery = 35 * time.Second
	// mayGrow is what the operator may grow by whatever a provider sends.
	mayGrow = 100
)

// observation is what became of the others meanwhile.
type observation struct {
	latencies []time.Duration
	// memory of the operator at most, in MiB.
	memory float64
}

func (o observation) String() string {
	return fmt.Sprintf("%d syncs of others: p50 %s, p99 %s; operator at most %.0f MiB", len(o.latencies),
		measure.Quantile(o.latencies, 0.5).Round(time.Millisecond), measure.Quantile(o.latencies, 0.99).Round(time.Millisecond), o.memory)
}

// others are ExternalSecrets of a provider that is well.
type others struct {
	ns    string
	round int
}

const probes = 8

func newOthers(t *testing.T) *others {
	t.Helper()

	o := &others{ns: product.Namespace(t)}
	product.Apply(t, o.ns, suite.FakeStore)

	for i := range probes {
		product.Apply(t, o.ns, suite.SimpleES(fmt.Sprintf("other-%d", i), "store"))
	}

	for i := range probes {
		product.Synced(t, o.ns, fmt.Sprintf("other-%d", i))
	}

	return o
}

// watch syncs the others again and again for a while.
func (o *others) watch(t *testing.T, d time.Duration) observation {
	t.Helper()

	var seen observation

	for began := time.Now(); time.Since(began) < d; {
		o.round++
		seen.latencies = append(seen.latencies, o.sync(t, fmt.Sprintf("other-%d", o.round%probes)))
		seen.memory = max(seen.memory, resident(t, product.Operator().PID()))
	}

	return seen
}

func (o *others) sync(t *testing.T, name string) time.Duration {
	t.Helper()

	es, _, err := product.ExternalSecret(t.Context(), o.ns, name)
	if err != nil {
		t.Fatal(err)
	}

	before := es.Status.SyncedForceSync
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"external-secrets.io/force-sync":"%d"}}}`, o.round))
	began := time.Now()

	if err := product.Client.Patch(t.Context(), es, patch); err != nil {
		t.Fatal(err)
	}

	for time.Since(began) < suite.Patience {
		if es, _, err = product.ExternalSecret(t.Context(), o.ns, name); err == nil && es.Status.SyncedForceSync != before {
			return time.Since(began)
		}

		time.Sleep(5 * time.Millisecond)
	}

	t.Errorf("another's ExternalSecret is not synced within %s: %v", suite.Patience, err)

	return suite.Patience
}

// resident memory of a process in MiB.
func resident(t *testing.T, pid int) float64 {
	t.Helper()

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the memory of process %d is not known", pid)
	}

	kilobytes, _ := strconv.ParseFloat(string(found[1]), 64)

	return kilobytes / 1024
}

// valve is a listener whose connections can be slowed down, frozen or cut.
type valve struct {
	net.Listener

	mu    sync.Mutex
	conns map[*gated]bool
	mode  string
}

// Modes of a valve.
const (
	open = ""
	// dripping lets one byte through per second.
	dripping = "dripping"
	// frozen lets nothing through, and closes nothing.
	frozen = "frozen"
	// cut closes what there is and what comes.
	cut = "cut"
)

type gated struct {
	net.Conn

	valve *valve
}

func newValve(t *testing.T) *valve {
	t.Helper()

	return &valve{Listener: suite.Listen(t), conns: map[*gated]bool{}}
}

func (v *valve) set(mode string) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.mode = mode

	if mode == cut || mode == open {
		// Frozen connections stay broken, as behind a firewall that has dropped their
		// state.
		for conn := range v.conns {
			_ = conn.Conn.Close()
		}
	}
}

func (v *valve) now() string {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.mode
}

// Accept takes a connection, unless everything is cut off.
func (v *valve) Accept() (net.Conn, error) {
	for {
		conn, err := v.Listener.Accept()
		if err != nil {
			return nil, err
		}

		if v.now() == cut {
			_ = conn.Close()

			continue
		}

		c := &gated{Conn: conn, valve: v}

		v.mu.Lock()
		v.conns[c] = true
		v.mu.Unlock()

		return c, nil
	}
}

// Write lets through what the mode allows.
func (c *gated) Write(p []byte) (int, error) {
	for i := range p {
		switch c.valve.now() {
		case dripping:
			if _, err := c.Conn.Write(p[i : i+1]); err != nil {
				return i, err
			}

			time.Sleep(time.Second)
		case frozen:
			for c.valve.now() == frozen {
				time.Sleep(10 * time.Millisecond)
			}

			return i, net.ErrClosed
		default:
			n, err := c.Conn.Write(p[i:])

			return i + n, err
		}
	}

	return len(p), nil
}

// Close forgets the connection.
func (c *gated) Close() error {
	c.valve.mu.Lock()
	delete(c.valve.conns, c)
	c.valve.mu.Unlock()

	return c.Conn.Close()
}

// hostile is a provider that does harm by the name of the key that it is asked
// for.
type hostile struct {
	suite.Stub

	huge []byte
}

// million keys, more than a target could hold.
const million = 1_000_000

func (h *hostile) GetSecrets(ctx context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	read := request.GetReads()[0]
	id := read.GetId()
	one := func(outcome *pb.SecretResult) *pb.GetSecretsResponse {
		return &pb.GetSecretsResponse{Results: []*pb.SecretResult{outcome}}
	}
	mapped := func(keys ...string) *pb.GetSecretsResponse {
		m := &pb.SecretMap{}
		for _, key := range keys {
			m.Entries = append(m.Entries, &pb.SecretEntry{Key: key, Value: []byte("v")})
		}

		return one(&pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Map{Map: m}})
	}

	switch read.GetKey() {
	case "huge":
		return one(&pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Value{Value: h.huge}}), nil
	case "bomb":
		if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
			return nil, err
		}

		return one(&pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Value{Value: h.huge[:64<<20]}}), nil
	case "many-keys":
		keys := make([]string, million)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}

		return mapped(keys...), nil
	case "too-many-keys":
		keys := make([]string, 20_000)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}

		return mapped(keys...), nil
	case "path":
		return mapped("../../x"), nil
	case "not-utf8":
		return raw(id), nil
	case "wrong-id":
		return one(&pb.SecretResult{Id: id + "x", Outcome: &pb.SecretResult_Value{Value: []byte("v")}}), nil
	case "another-shape":
		return mapped("a"), nil
	case "twice":
		answer := one(&pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Value{Value: []byte("v")}})
		answer.Results = append(answer.Results, answer.GetResults()[0])

		return answer, nil
	case "never":
		<-ctx.Done()

		return nil, ctx.Err()
	case "slow":
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}

	return one(&pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Value{Value: []byte("v")}}), nil
}

// raw is an answer with a key that is not UTF-8, which no honest server would
// encode.
func raw(id string) *pb.GetSecretsResponse {
	entry := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{0xff, 0xfe})
	keys := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
	result := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	result = protowire.AppendBytes(protowire.AppendTag(result, 3, protowire.BytesType), keys)

	answer := &pb.GetSecretsResponse{}
	answer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), result))

	return answer
}

// FindSecrets never ends.
func (h *hostile) FindSecrets(_ *pb.FindSecretsRequest, stream pb.SecretStore_FindSecretsServer) error {
	for i := 0; ; i++ {
		if err := stream.Send(&pb.FindSecretsResponse{Entries: []*pb.SecretEntry{{Key: strconv.Itoa(i), Value: []byte("v")}}}); err != nil {
			return err
		}
	}
}

// serveHostile registers a hostile provider behind a valve, with a store.
func serveHostile(t *testing.T) (ns string, g *valve) {
	t.Helper()

	ns, g = product.Namespace(t), newValve(t)
	name := "hostile-" + ns
	product.Register(t, name, g.Addr().String(), ns)
	pair, pool := product.Issued(t, ns, name)

	h := &hostile{huge: make([]byte, 1<<30)}
	h.Info = suite.StubInfo(name)
	h.Info.Kinds[0].Capabilities = append(h.Info.Kinds[0].Capabilities, pb.Capability_CAPABILITY_FIND)
	suite.Serve(t, g, pair, pool, h)
	product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonServing)

	product.Apply(t, ns, suite.StoreAt("store", g.Addr().String(), ""))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	return ns, g
}

// The answers of a provider neither exhaust the operator's memory nor delay other
// providers.
func TestHostileProvider(t *testing.T) {
	o := newOthers(t)
	calm := o.watch(t, calmFor)
	t.Logf("before: %s", calm)

	ns, g := serveHostile(t)

	for _, c := range []struct{ name, want string }{
		{"huge", "is over the limit of 4259840 bytes"},
		{"bomb", "does not support compressor"},
		{"many-keys", "is over the limit"},
		{"too-many-keys", "keys, more than 10000"},
		{"path", `the key ".._.._x" is not one that a Secret may have`},
		{"not-utf8", "invalid UTF-8"},
		{"wrong-id", "the provider breaks the protocol"},
		{"another-shape", "the provider breaks the protocol"},
		{"twice", "the provider breaks the protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := "  data:\n  - secretKey: password\n    remoteRef: {key: " + c.name + "}\n"
			if strings.Contains(c.name, "keys") || c.name == "path" || c.name == "not-utf8" {
				read = "  dataFrom:\n  - extract: {key: " + c.name + "}\n"
			}

			// A store that answers nonsense is left alone for a while: each case has
			// one of its own.
			product.Apply(t, ns, suite.StoreAt(c.name, g.Addr().String(), "")+`---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: `+c.name+`}
spec:
  refreshInterval: 1s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: `+c.name+`}
`+read)
			t.Log(product.Failing(t, ns, c.name, c.want))

			seen := o.watch(t, troubleFor/5)
			t.Logf("meanwhile: %s", seen)
			unharmed(t, calm, seen)

			if _, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "externalsecret", c.name); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("a stream without end", func(t *testing.T) {
		product.Apply(t, ns, `
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: endless}
spec:
  refreshInterval: 1s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  dataFrom:
  - find: {name: {regexp: ".*"}}
`)
		t.Log(product.Failing(t, ns, "endless", "more than 10000 secrets match"))

		seen := o.watch(t, troubleFor/3)
		t.Logf("meanwhile: %s", seen)
		unharmed(t, calm, seen)
	})

	t.Run("a byte per second", func(t *testing.T) {
		product.Apply(t, ns, suite.StoreAt("dripping", g.Addr().String(), "")+suite.SimpleES("dripping", "dripping"))
		g.set(dripping)
		defer g.set(open)

		seen := o.watch(t, troubleFor)
		t.Logf("meanwhile: %s", seen)
		unharmed(t, calm, seen)
	})
}

// unharmed: the others are synced about as fast, and the operator has not grown.
func unharmed(t *testing.T, before, during observation) {
	t.Helper()

	if during.memory > before.memory+mayGrow {
		t.Errorf("the operator has grown from %.0f to %.0f MiB", before.memory, during.memory)
	}

	// Other suites run on the same machine meanwhile. What a provider harms is
	// delayed by seconds: by its deadline, or by its answers.
	if p50, limit := measure.Quantile(during.latencies, 0.5), 2*measure.Quantile(before.latencies, 0.5)+500*time.Millisecond; p50 > limit {
		t.Errorf("half of the others take more than %s, and should not more than %s", p50, limit)
	}
}

// A provider that is hung, slow, half lost or away harms no other, and works
// again soon after.
func TestFaultyProvider(t *testing.T) {
	o := newOthers(t)
	calm := o.watch(t, calmFor)
	t.Logf("before: %s", calm)

	ns, g := serveHostile(t)

	gone := away

	if text := os.Getenv(awayVariable); text != "" {
		var err error
		if gone, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", awayVariable, err)
		}
	}

	for _, c := range []struct {
		name, key, mode string
		lasts           time.Duration
	}{
		{"answers after five seconds", "slow", open, troubleFor},
		{"never answers", "never", open, troubleFor},
		{"half-open", "well", frozen, troubleFor},
		{"away", "well", cut, gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ReplaceAll(c.name, " ", "-"), "half-open", "halfopen")

			// As many as would take up all workers, if they could.
			var manifests strings.Builder
			for i := range 100 {
				fmt.Fprintf(&manifests, `---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: %s-%d}
spec:
  refreshInterval: 1s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
  - secretKey: v
    remoteRef: {key: %s, version: "%d"}
`, name, i, c.key, i)
			}

			g.set(c.mode)
			product.Apply(t, ns, manifests.String())

			seen := o.watch(t, c.lasts)
			t.Logf("for %s: %s", c.lasts, seen)
			unharmed(t, calm, seen)

			g.set(open)

			back := time.Now()

			product.Apply(t, ns, strings.ReplaceAll(strings.ReplaceAll(manifests.String(), "key: slow", "key: well"), "key: never", "key: well"))
			suite.Within(t, recovery, func(ctx context.Context) error {
				for i := range 100 {
					es, ready, err := product.ExternalSecret(ctx, ns, fmt.Sprintf("%s-%d", name, i))
					if err != nil {
						return err
					}

					if ready.Status != "True" || es.Status.RefreshTime.Time.Before(back.Truncate(time.Second)) {
						return fmt.Errorf("%s is not synced: %+v", es.Name, *ready)
					}
				}

				return nil
			})
			t.Logf("all 100 synced %s after the end", time.Since(back).Round(100*time.Millisecond))

			if _, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "externalsecret", "--all", "--wait=false"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Of a provider's calls a fifth is lost: the others do not notice, and its own
// are repeated until they succeed.
func TestLossyProvider(t *testing.T) {
	o := newOthers(t)
	calm := o.watch(t, calmFor)

	ns, listener := product.Namespace(t), suite.Listen(t)
	name := "lossy-" + ns
	product.Register(t, name, listener.Addr().String(), ns)
	pair, pool := product.Issued(t, ns, name)

	var (
		mu    sync.Mutex
		calls int
	)

	lossy := &lossyStub{Stub: suite.Stub{Info: suite.StubInfo(name)}, lost: func() bool {
		mu.Lock()
		defer mu.Unlock()

		calls++

		return calls%5 == 0
	}}
	suite.Serve(t, listener, pair, pool, lossy)
	product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonServing)
	product.Apply(t, ns, suite.StoreAt("store", listener.Addr().String(), ""))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	stop := product.WatchFailures(t, ns)

	for i := range 20 {
		product.Apply(t, ns, strings.Replace(suite.SimpleES(fmt.Sprintf("app-%d", i), "store"), "refreshInterval: 1h", "refreshInterval: 1s", 1))
	}

	seen := o.watch(t, troubleFor)
	t.Logf("before: %s; meanwhile: %s", calm, seen)
	unharmed(t, calm, seen)

	for i := range 20 {
		product.Synced(t, ns, fmt.Sprintf("app-%d", i))
	}

	for message, n := range stop() {
		if !strings.Contains(message, "has not been synced yet") && message != "" {
			t.Logf("seen %d times: %s", n, message)
		}
	}
}

type lossyStub struct {
	suite.Stub

	lost func() bool
}

func (l *lossyStub) GetSecrets(_ context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	if l.lost() {
		return nil, status.Error(codes.Unavailable, "lost")
	}

	answer := &pb.GetSecretsResponse{}
	for _, read := range request.GetReads() {
		answer.Results = append(answer.Results, &pb.SecretResult{Id: read.GetId(), Outcome: &pb.SecretResult_Value{Value: []byte("v")}})
	}

	return answer, nil
}
