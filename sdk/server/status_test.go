package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// What the provider says of itself follows from what its calls came to.
func TestStatusFollowsTheCalls(t *testing.T) {
	for _, test := range []struct {
		name, why string
		calls     int
		construct error
		result    provider.Result
		want      pb.GetStatusResponse_State
	}{
		{name: "no calls", why: "nothing is known against it", want: pb.GetStatusResponse_STATE_OK},
		{name: "good calls", why: "they are why it is ok", calls: 10, result: provider.Result{Value: []byte("v")}, want: pb.GetStatusResponse_STATE_OK},
		{
			name: "backend away", why: "each read fails, the calls themselves do not: it must show all the same",
			calls: 10, result: provider.Result{Err: provider.Unavailable("away")}, want: pb.GetStatusResponse_STATE_DEGRADED,
		},
		{
			name: "no login", why: "the calls themselves fail",
			calls: 10, construct: provider.Unavailable("away"), want: pb.GetStatusResponse_STATE_DEGRADED,
		},
		{
			name: "users' mistakes", why: "requests for missing secrets must not degrade the provider's status",
			calls: 10, result: provider.Result{Err: provider.NotFound("none")}, want: pb.GetStatusResponse_STATE_OK,
		},
		{
			name: "invalid configs", why: "likewise",
			calls: 10, construct: provider.InvalidConfig("no"), want: pb.GetStatusResponse_STATE_OK,
		},
		{
			name: "few calls", why: "a single failure is not significant",
			calls: 4, result: provider.Result{Err: provider.Unavailable("away")}, want: pb.GetStatusResponse_STATE_OK,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{
				construct: func(context.Context, provider.Environment) error { return test.construct },
				read:      answer(func(provider.Read) provider.Result { return test.result }),
			}, Options{MetricsListen: "127.0.0.1:0"})

			for range test.calls {
				_, _ = p.read("a")
			}

			got, err := p.info.GetStatus(p.context(), &pb.GetStatusRequest{})
			if err != nil || got.GetState() != test.want || (got.GetReason() == "") != (test.want == pb.GetStatusResponse_STATE_OK) {
				t.Errorf("%s: %v, %v", test.why, got, err)
			}

			// Degraded or not, it is to be sent calls.
			if code, _ := p.get("/readyz"); code != 200 {
				t.Errorf("%s: readiness is %d", test.why, code)
			}
		})
	}
}

func TestReadsAreCounted(t *testing.T) {
	p := start(t, &backend{read: answer(func(r provider.Read) provider.Result {
		if r.Key == "none" {
			return provider.Result{Err: provider.NotFound("none")}
		}

		return provider.Result{Value: []byte("v")}
	})}, Options{MetricsListen: "127.0.0.1:0"})

	for _, key := range []string{"a", "none", "b"} {
		if _, err := p.read(key); err != nil {
			t.Fatal(err)
		}
	}

	metrics := p.metrics()

	for _, line := range []string{
		`externalsecrets_provider_reads_total{code="OK"} 2`,
		`externalsecrets_provider_reads_total{code="NotFound"} 1`,
		`externalsecrets_provider_requests_total{code="OK",method="GetSecrets"} 3`,
		`externalsecrets_provider_stores 1`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s:\n%s", line, metrics)
		}
	}
}

func TestStatusOfTheCertificate(t *testing.T) {
	m := newMetrics()
	s := &ownStatus{metrics: m}

	m.expires = func() time.Time { return time.Now().Add(time.Minute) }

	if state, reason := s.now(); state != pb.GetStatusResponse_STATE_OK {
		t.Errorf("a minute before its end: %v, %s", state, reason)
	}

	m.expires = func() time.Time { return time.Now().Add(-time.Minute) }

	if state, reason := s.now(); state != pb.GetStatusResponse_STATE_FAILING || !strings.Contains(reason, "expired") {
		t.Errorf("a minute after its end: %v, %s", state, reason)
	}
}

func TestRecentForgets(t *testing.T) {
	m := newMetrics()
	m.call("GetSecrets", codes.Unavailable, time.Second)
	m.call("GetInfo", codes.Unavailable, time.Second)

	if failed, all := m.recent(time.Now()); failed != 1 || all != 1 {
		t.Errorf("now: %d of %d failed; only calls that reach a backend count", failed, all)
	}

	if failed, all := m.recent(time.Now().Add(2 * recentSpan)); failed != 0 || all != 0 {
		t.Errorf("two minutes later: %d of %d failed", failed, all)
	}
}
