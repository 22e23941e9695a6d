package kit

import (
	"context"
	"sync/atomic"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// ending is what was seen of a provider that was asked to end.
type ending struct {
	// notServing: health said so while calls were still answered.
	notServing bool
	// inFlight is how the call ended that was in flight.
	inFlight error
	// closed: new calls were refused before the call in flight had ended.
	closed bool
	// byItself: it ended in time, with err.
	byItself bool
	err      error
	took     time.Duration
}

func lifecycleTests() []Test {
	started := Needs{Command: true}
	slow := Needs{Command: true, Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ}, Fixtures: []Fixture{FixtureSlow}}

	return []Test{
		{ID: "lifecycle.health-says-so-first", Why: "Load balancers must remove the provider before calls fail.", Needs: started, Run: func(_ context.Context, t *T) {
			if !t.run.ending().notServing {
				t.Errorf("after SIGTERM: health did not say NOT_SERVING before the connection was closed")
			}
		}},
		{ID: "lifecycle.calls-in-flight-end", Why: "Updating a provider must not fail a sync.", Needs: slow, Run: func(_ context.Context, t *T) {
			if err := t.run.ending().inFlight; err != nil {
				t.Errorf("after SIGTERM: the call in flight failed with %s", described(err))
			}
		}},
		{ID: "lifecycle.new-calls-are-refused", Why: "A provider that keeps accepting calls never exits and is killed during one.", Needs: slow, Run: func(_ context.Context, t *T) {
			if !t.run.ending().closed {
				t.Errorf("after SIGTERM: new calls were taken as long as the call in flight lasted")
			}
		}},
		{ID: "lifecycle.exits-with-status-0", Why: "A regular shutdown must not look like a crash.", Needs: started, Run: func(_ context.Context, t *T) {
			switch seen := t.run.ending(); {
			case !seen.byItself:
				t.Errorf("after SIGTERM: it had not ended after %s, and was killed", seen.took.Round(time.Second))
			case seen.err != nil:
				t.Errorf("after SIGTERM: %v", seen.err)
			}
		}},
	}
}

// end asks the provider to end, and watches. It runs once.
func (r *run) end(ctx context.Context) *ending {
	seen := &ending{}

	watched, err := r.dial()
	if err != nil {
		seen.err = err

		return seen
	}
	defer watched.Close()

	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()

	health := healthpb.NewHealthClient(watched)
	_, _ = health.Check(ctx, &healthpb.HealthCheckRequest{})

	var ended atomic.Bool

	done := make(chan struct{})

	go func() {
		defer close(done)
		defer ended.Store(true)

		if r.target.Fixtures.Slow == nil {
			return
		}

		t := &T{run: r}
		_, seen.inFlight = t.store().GetSecrets(ctx, t.slowly())
	}()

	// The call has to be there before the signal is.
	if r.target.Fixtures.Slow != nil {
		time.Sleep(500 * time.Millisecond)
	}

	began := time.Now()
	r.process.terminate()

	for !seen.notServing {
		answer, err := health.Check(exempt(ctx), &healthpb.HealthCheckRequest{})
		if err != nil {
			break
		}

		seen.notServing = answer.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING

		time.Sleep(5 * time.Millisecond)
	}

	for !ended.Load() && !seen.closed {
		seen.closed = r.closed(ctx) && !ended.Load()

		time.Sleep(20 * time.Millisecond)
	}

	<-done

	// A call that was cut is for another test.
	if seen.inFlight != nil {
		seen.closed = r.closed(ctx)
	}

	seen.byItself = r.process.wait(r.process.timeout)
	seen.err, seen.took = r.process.ended(), time.Since(began)

	return seen
}

// closed reports whether a new call is refused.
func (r *run) closed(ctx context.Context) bool {
	conn, err := r.dial()
	if err != nil {
		return false
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(exempt(ctx), time.Second)
	defer cancel()

	_, err = pb.NewProviderInfoClient(conn).GetInfo(ctx, &pb.GetInfoRequest{})

	return err != nil
}
