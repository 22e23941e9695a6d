package measure

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	of := func(n int) []time.Duration {
		var durations []time.Duration
		for i := n; i > 0; i-- {
			durations = append(durations, time.Duration(i))
		}

		return durations
	}

	for _, c := range []struct {
		why  string
		of   []time.Duration
		q    float64
		want time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one is every quantile", of(1), 0.99, 1},
		{"the middle of an odd number", of(5), 0.5, 3},
		{"the lower middle of an even number", of(4), 0.5, 2},
		{"of a hundred, one is above", of(100), 0.99, 99},
		{"of fewer than a hundred, none is", of(60), 0.99, 60},
		{"the smallest", of(5), 0, 1},
		{"the largest", of(5), 1, 5},
	} {
		if got := Quantile(c.of, c.q); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}

	unsorted := []time.Duration{3, 1, 2}
	Quantile(unsorted, 0.5)

	if diff := cmp.Diff([]time.Duration{3, 1, 2}, unsorted); diff != "" {
		t.Errorf("the argument was sorted: %s", diff)
	}
}

func TestParseStat(t *testing.T) {
	parent, cpu, err := parseStat("4711 (a (strange) name) S 42 4711 4711 0 -1 4194560 100 0 0 0 150 75 9 9 20 0 5 0 100 1000 200 18446744073709551615\n")
	if err != nil || parent != 42 || cpu != 2250*time.Millisecond {
		t.Errorf("parent %d, cpu %s, %v", parent, cpu, err)
	}

	for why, content := range map[string]string{
		"empty":          "",
		"too short":      "1 (init) S 0 1 1",
		"not a number":   "1 (init) S x 1 1 0 -1 4194560 100 0 0 0 150 75 9 9 20",
		"no name at all": "1 init S 0 1 1 0 -1 4194560 100 0 0 0 150 75 9 9 20",
	} {
		if _, _, err := parseStat(content); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}

func TestParseStatus(t *testing.T) {
	resident, peak, err := parseStatus("Name:\tetcd\nVmPeak:\t  900 kB\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nThreads:\t5\n")
	if err != nil || resident != 100<<10 || peak != 200<<10 {
		t.Errorf("resident %d, peak %d, %v", resident, peak, err)
	}

	if resident, peak, err = parseStatus("Name:\tended\nState:\tZ (zombie)\n"); err != nil || resident != 0 || peak != 0 {
		t.Errorf("a process that has ended: resident %d, peak %d, %v", resident, peak, err)
	}

	if _, _, err = parseStatus("VmRSS:\t100 MB\n"); err == nil {
		t.Error("another unit is no error")
	}
}

func TestReadProcesses(t *testing.T) {
	processes, err := ReadProcesses()
	if err != nil {
		t.Fatal(err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	if usage := processes[filepath.Base(self)]; usage.PID != os.Getpid() || usage.Resident == 0 || usage.Peak < usage.Resident {
		t.Errorf("this process is %+v", usage)
	}
}

func TestProcessesSince(t *testing.T) {
	before := Processes{"kept": {PID: 1, CPU: 10}, "restarted": {PID: 2, CPU: 10}, "ended": {PID: 3, CPU: 10}}
	after := Processes{"kept": {PID: 1, CPU: 15, Peak: 7}, "restarted": {PID: 4, CPU: 3}, "new": {PID: 5, CPU: 1}}
	want := Processes{"kept": {PID: 1, CPU: 5, Peak: 7}, "restarted": {PID: 4, CPU: 3}, "new": {PID: 5, CPU: 1}}

	if diff := cmp.Diff(want, after.Since(before)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	if total := want.CPU(); total != 9 {
		t.Errorf("the total is %d", total)
	}

	if diff := cmp.Diff([]string{"kept", "new", "restarted"}, want.Names()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCounts(t *testing.T) {
	counts := Counts{"a": 5, "b": 7, "c": 7}.Minus(Counts{"a": 5, "b": 2, "d": 1})
	if diff := cmp.Diff(Counts{"b": 5, "c": 7}, counts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	if total := counts.Total(); total != 12 {
		t.Errorf("total %d", total)
	}

	if diff := cmp.Diff([]string{"c", "b"}, counts.Names()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseRequests(t *testing.T) {
	counts, err := parseRequests(`# HELP apiserver_request_total [STABLE] Counter.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="secrets",scope="resource",subresource="",verb="APPLY"} 3
apiserver_request_total{code="201",resource="secrets",scope="resource",subresource="",verb="APPLY"} 4
apiserver_request_total{code="200",resource="externalsecrets",scope="resource",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="0",resource="secrets",scope="cluster",subresource="",verb="WATCH"} 6
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PUT"} 7
apiserver_request_total{code="200",resource="",scope="",subresource="/healthz",verb="GET"} 8
# TYPE apiserver_request_total_other counter
apiserver_request_total_other{resource="secrets",verb="GET"} 9
`)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(Counts{"APPLY secrets": 7, "PATCH externalsecrets/status": 5}, counts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLedgerNamesRequestsAsTheServerDoes(t *testing.T) {
	for _, c := range []struct{ method, url, content, want string }{
		{"GET", "/api/v1/namespaces/ns/secrets/app", "", "GET secrets"},
		{"GET", "/api/v1/namespaces/ns/secrets", "", "LIST secrets"},
		{"GET", "/api/v1/secrets?limit=500", "", "LIST secrets"},
		{"GET", "/api/v1/secrets?watch=true", "", ""},
		{"POST", "/api/v1/namespaces/ns/secrets", "application/json", "POST secrets"},
		{"PATCH", "/api/v1/namespaces/ns/secrets/app", "application/apply-patch+yaml", "APPLY secrets"},
		{"PATCH", "/apis/external-secrets.io/v1/namespaces/ns/externalsecrets/app/status", "application/merge-patch+json", "PATCH externalsecrets/status"},
		{"DELETE", "/apis/external-secrets.io/v1/namespaces/ns/externalsecrets", "", "DELETECOLLECTION externalsecrets"},
		{"GET", "/api/v1/namespaces/ns", "", "GET namespaces"},
		{"PUT", "/api/v1/namespaces/ns/finalize", "", "PUT namespaces/finalize"},
		{"POST", "/api/v1/namespaces", "", "POST namespaces"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "", ""},
		{"GET", "/apis/external-secrets.io/v1", "", ""},
		{"GET", "/metrics", "", ""},
		{"GET", "/", "", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "https://server"+c.url, nil)
		if err != nil {
			t.Fatal(err)
		}

		request.Header.Set("Content-Type", c.content)

		if got := nameOf(request); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.url, got, c.want)
		}
	}
}

func TestBackendKind(t *testing.T) {
	counts := BackendKinds(Counts{
		"GET /v1/secret/data/a":              1,
		"GET /v1/secret/metadata/a":          1,
		"GET /v1/kv1/login":                  1,
		"PUT /v1/auth/kubernetes/login":      1,
		"PUT /v1/auth/userpass/login/me":     1,
		"PUT /v1/auth/token/renew-self":      1,
		"GET /v1/auth/token/lookup-self":     1,
		"GET /v1/sys/internal/ui/mounts/kv1": 1,
		"PUT /v1/auth/token/revoke-self":     1,
		"LIST /v1/secret/metadata/":          1,
	})

	if diff := cmp.Diff(Counts{BackendRead: 3, BackendLogin: 3, BackendLookup: 1, BackendOther: 3}, counts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMachine(t *testing.T) {
	machine, err := ReadMachine()
	if err != nil {
		t.Fatal(err)
	}

	if machine.Cores < 1 || machine.Memory < 1<<20 || machine.GoVersion == "" {
		t.Errorf("%+v", machine)
	}

	if got := field("processor\t: 0\nmodel name\t: A CPU: fast\nmodel name\t: another\n", "model name"); got != "A CPU: fast" {
		t.Errorf("field is %q", got)
	}
}
