package disruption

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/suite"
)

// gate stands between the operator and the API server. It lets each object of
// one namespace have one write, and holds its next one back, as if the operator
// had died in between. Reads pass: to have died after one is to have died before
// the write that follows.
type gate struct {
	namespace string
	forward   *httputil.ReverseProxy
	server    *http.Server
	address   string
	token     string

	mu     sync.Mutex
	passed map[string]int
	last   time.Time
	calls  map[string]int
	closed chan struct{}
}

// objectPath finds the requests that are made for one object.
var objectPath = regexp.MustCompile(`/namespaces/([^/]+)/(secrets|externalsecrets|configmaps)/([^/]+)`)

func newGate(t *testing.T, namespace string) *gate {
	t.Helper()

	config := product.ControlPlane.Config()

	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}

	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}

	// Without the administrator's own certificate: the operator has a token.
	tls.Certificates, tls.GetClientCertificate = nil, nil

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	g := &gate{namespace: namespace, address: "http://" + listener.Addr().String(), calls: map[string]int{}}
	g.next()

	g.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// Clients send no token over plain HTTP.
			r.Out.Header.Set("Authorization", "Bearer "+g.token)
		},
		Transport:     &http.Transport{TLSClientConfig: tls, MaxIdleConnsPerHost: 100, ForceAttemptHTTP2: true},
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				t.Logf("%s %s: %v", r.Method, r.URL.Path, err)
			}

			w.WriteHeader(http.StatusBadGateway)
		},
	}
	g.server = &http.Server{Handler: g, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}

	var serving sync.WaitGroup

	serving.Go(func() { _ = g.server.Serve(listener) })
	t.Cleanup(func() {
		g.next()
		_ = g.server.Close()
		serving.Wait()
	})

	return g
}

// next lets every object have one more write. Those that are held fail.
func (g *gate) next() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.closed != nil {
		close(g.closed)
	}

	g.closed, g.passed, g.last = make(chan struct{}), map[string]int{}, time.Now()
}

// ServeHTTP passes on, or holds, a request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	object, call := g.object(r)
	if object == "" {
		g.forward.ServeHTTP(w, r)

		return
	}

	g.mu.Lock()
	g.passed[object]++
	first, closed := g.passed[object] == 1, g.closed

	if first {
		g.last = time.Now()
		g.calls[call]++
	}

	g.mu.Unlock()

	if first {
		g.forward.ServeHTTP(w, r)

		return
	}

	select {
	case <-closed:
	case <-r.Context().Done():
	}

	// The operator that asked is dead.
	panic(http.ErrAbortHandler)
}

// object that a request is made for; empty for what is not counted.
func (g *gate) object(r *http.Request) (object, call string) {
	if strings.Contains(r.URL.Path, "/events") && r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return "", ""
		}

		r.Body = io.NopCloser(bytes.NewReader(body))

		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)

		event, ok := object.(*eventsv1.Event)
		if err != nil || !ok || event.Regarding.Namespace != g.namespace {
			return "", ""
		}

		return event.Regarding.Name, "POST event"
	}

	match := objectPath.FindStringSubmatch(r.URL.Path)
	if match == nil || match[1] != g.namespace || r.Method == http.MethodGet {
		return "", ""
	}

	call = r.Method + " " + match[2]
	if strings.HasSuffix(r.URL.Path, "/status") {
		call += "/status"
	}

	// A target's former and its new name are one ExternalSecret's: it must be
	// able to die between the two.
	return strings.TrimSuffix(match[3], renamed), call
}

// calm returns for how long no request was let through, and whether any is held.
func (g *gate) calm() (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	held := false
	for _, n := range g.passed {
		held = held || n > 1
	}

	return time.Since(g.last), held
}

func (g *gate) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return len(g.passed) > 0
}

// kubeconfig of the operator, by way of the gate.
func (g *gate) kubeconfig(t *testing.T) string {
	t.Helper()

	path, err := product.ControlPlane.KubeconfigFor(t.Context(), types.NamespacedName{Namespace: installation.OperatorNamespace, Name: "external-secrets-operator"})
	if err != nil {
		t.Fatal(err)
	}

	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for name := range config.Clusters {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: g.address}
	}

	for _, account := range config.AuthInfos {
		g.token = account.Token
	}

	through := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, through); err != nil {
		t.Fatal(err)
	}

	return through
}

// renamed is what the name of a target ends in after it was changed.
const renamed = "-new"

// lives are the ExternalSecrets of every pair of policies that may be, and one
// that reads its store once.
func lives() map[string]string {
	specs := map[string]string{}

	for _, creation := range []esv1.CreationPolicy{esv1.CreationOwner, esv1.CreationOrphan, esv1.CreationMerge, esv1.CreationCreateOrMerge, esv1.CreationNone} {
		for _, deletion := range []esv1.DeletionPolicy{esv1.DeletionRetain, esv1.DeletionDelete, esv1.DeletionMerge} {
			switch {
			case deletion == esv1.DeletionDelete && creation != esv1.CreationOwner && creation != esv1.CreationOrphan,
				deletion == esv1.DeletionMerge && creation == esv1.CreationNone:
				continue
			}

			name := strings.ToLower(string(creation) + "-" + string(deletion))
			specs[name] = fmt.Sprintf("  target: {creationPolicy: %s, deletionPolicy: %s}\n  data: [{secretKey: a, remoteRef: {key: a}}, {secretKey: b, remoteRef: {key: b}}]\n", creation, deletion)
		}
	}

	// Only the name of its target shows that something is left to do for such a one.
	// It reads what stays the same while it looks: what it has lost with its
	// memory it reads again.
	specs["owner-once"] = "  refreshPolicy: CreatedOnce\n  target: {creationPolicy: Owner}\n  data: [{secretKey: b, remoteRef: {key: b}}]\n"

	return specs
}

// phases of a life: what becomes of the store, and of the ExternalSecrets.
var phases = []struct {
	name string
	do   func(t *testing.T, ns string)
}{
	{"made", func(t *testing.T, ns string) {
		t.Helper()
		product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"1\"}\n  - {key: b, value: \"2\"}\n"))

		for name, spec := range lives() {
			if strings.HasPrefix(name, "merge-") {
				product.NewSecret(t, ns, name, corev1.SecretTypeOpaque, map[string]string{"own": "theirs"})
			}

			product.Apply(t, ns, strings.Replace(suite.ES(name, spec), "refreshInterval: 1s", "refreshInterval: 1h", 1))
		}
	}},
	{"changed", func(t *testing.T, ns string) {
		t.Helper()
		product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"changed\"}\n  - {key: b, value: \"2\"}\n"))
	}},
	{"one is gone", func(t *testing.T, ns string) {
		t.Helper()
		product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"changed\"}\n"))
	}},
	{"all are gone", func(t *testing.T, ns string) {
		t.Helper()
		product.Apply(t, ns, suite.FakeWith("  - {key: other, value: \"1\"}\n"))
	}},
	{"back", func(t *testing.T, ns string) {
		t.Helper()
		product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"back\"}\n  - {key: b, value: \"2\"}\n"))
	}},
	{"drifted", func(t *testing.T, ns string) {
		t.Helper()

		for name := range lives() {
			secret, err := product.Secret(t.Context(), ns, name)
			if apierrors.IsNotFound(err) {
				continue
			}

			if err != nil {
				t.Fatal(err)
			}

			secret.Data["a"] = []byte("drift")
			if err := product.Client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"renamed", func(t *testing.T, ns string) {
		t.Helper()

		for name, spec := range lives() {
			if strings.HasPrefix(name, "owner-") {
				spec = strings.Replace(spec, "{creationPolicy", "{name: "+name+renamed+", creationPolicy", 1)
				product.Apply(t, ns, strings.Replace(suite.ES(name, spec), "refreshInterval: 1s", "refreshInterval: 1h", 1))
			}
		}
	}},
	{"deleted", func(t *testing.T, ns string) {
		t.Helper()

		if out, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "externalsecret", "--all", "--wait=false"); err != nil {
			t.Fatal(out, err)
		}
	}},
}

// stateOf everything in a namespace, without what two lives never share.
func stateOf(t *testing.T, ns string) map[string]string {
	t.Helper()

	state := map[string]string{}

	var secrets corev1.SecretList
	if err := product.Client.List(t.Context(), &secrets, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}

	for _, secret := range secrets.Items {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			lines = append(lines, key+"="+string(secret.Data[key]))
		}

		for _, owner := range secret.OwnerReferences {
			lines = append(lines, "owner "+owner.Kind+" "+owner.Name)
		}

		labels := maps.Clone(secret.Labels)
		if labels[esv1.LabelOwner] != "" {
			labels[esv1.LabelOwner] = "set"
		}

		lines = append(lines, fmt.Sprint(labels), fmt.Sprint(slices.Sorted(maps.Keys(secret.Annotations))))
		state["Secret "+secret.Name] = strings.Join(lines, "\n")
	}

	var list esv1.ExternalSecretList
	if err := product.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}

	varying := regexp.MustCompile(`request [0-9a-f]{16}|; next try in .*`)

	for _, es := range list.Items {
		lines := []string{fmt.Sprintf("finalizers %v binding %v", es.Finalizers, es.Status.Binding)}
		for _, condition := range es.Status.Conditions {
			lines = append(lines, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, strings.ReplaceAll(varying.ReplaceAllString(condition.Message, ""), ns, "NS")))
		}

		state["ExternalSecret "+es.Name] = strings.Join(lines, " ")
	}

	return state
}

// The operator is killed after each write that it makes in the life of an
// ExternalSecret, for every pair of policies: it must come to the same end as
// one that was never killed.
func TestOperatorKilledAfterEachWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the operator some dozens of times")
	}

	calm, killed := product.Namespace(t), product.Namespace(t)

	// The result of an operator that is not killed.
	var want []map[string]string

	for _, phase := range phases {
		phase.do(t, calm)
		want = append(want, settled(t, calm))
	}

	g := newGate(t, killed)
	flags := append(slices.Clone(product.OperatorFlags), "--kubeconfig", g.kubeconfig(t))
	kills := 0

	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := product.StartOperator(context.Background(), product.OperatorFlags...); err != nil {
			t.Error(err)
		}
	})

	for i, phase := range phases {
		phase.do(t, killed)

		for round := 0; ; round++ {
			if round == 40 {
				t.Fatalf("%s: after %d kills it is not at rest: %v", phase.name, round, g.calls)
			}

			g.next()

			if err := product.StartOperator(t.Context(), flags...); err != nil {
				t.Fatal(err)
			}

			suite.Within(t, suite.Patience, func(context.Context) error {
				quiet, held := g.calm()
				if quiet > 2500*time.Millisecond || (held && quiet > 700*time.Millisecond) {
					return nil
				}

				return fmt.Errorf("a request passed %s ago", quiet)
			})

			if err := product.KillOperator(); err != nil {
				t.Fatal(err)
			}

			kills++

			if !g.any() {
				break
			}
		}

		got := settledIs(t, killed, want[i])
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%s: state (-never killed +killed after each write):\n%s", phase.name, diff)
		}
	}

	t.Logf("%d ExternalSecrets, %d kills; writes after which it was killed: %v", len(lives()), kills, g.calls)
}

var ownerLine = regexp.MustCompile(`owner ExternalSecret (\S+)`)

// settled waits until nothing changes any more.
func settled(t *testing.T, ns string) map[string]string {
	t.Helper()

	state, since := stateOf(t, ns), time.Now()

	suite.Within(t, time.Minute, func(context.Context) error {
		now := stateOf(t, ns)
		if !maps.Equal(state, now) {
			state, since = now, time.Now()
		}

		if quiet := time.Since(since); quiet < 3*time.Second {
			return fmt.Errorf("it changed %s ago", quiet)
		}

		// The garbage collector comes when it likes.
		for object, content := range now {
			if owner := ownerLine.FindStringSubmatch(content); owner != nil && now["ExternalSecret "+owner[1]] == "" {
				return fmt.Errorf("%s has lost its owner, and is still there", object)
			}
		}

		return nil
	})

	return state
}

// settledIs waits for a state; the garbage collector takes its time.
func settledIs(t *testing.T, ns string, want map[string]string) map[string]string {
	t.Helper()

	var state map[string]string

	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if state = stateOf(t, ns); maps.Equal(state, want) {
			break
		}
	}

	return state
}
