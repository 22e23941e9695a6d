package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func second[T any](_ T, err error) error { return err }

// watched returns the error that a watch ends with.
func watched(p *process, request *pb.WatchRequest) error {
	stream, err := p.secrets.Watch(p.context(), request)
	for err == nil {
		_, err = stream.Recv()
	}

	return err
}

func TestWrites(t *testing.T) {
	var (
		pushed  provider.Push
		deleted provider.Deletion
		asked   string
	)

	p := start(t, &backend{
		push: func(_ context.Context, push provider.Push) (provider.Pushed, error) {
			pushed = push

			return provider.Pushed{Changed: true, Revision: "7"}, nil
		},
		remove: func(_ context.Context, deletion provider.Deletion) (bool, error) {
			deleted = deletion

			return true, nil
		},
		exists: func(_ context.Context, key, property string) (bool, error) {
			asked = key + "#" + property

			return true, nil
		},
	}, Options{})

	push, err := p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{
		Context: callContext(), Key: "k", Property: "p", Value: []byte{0, 255}, UpdatePolicy: pb.UpdatePolicy_UPDATE_POLICY_IF_NOT_EXISTS,
		Metadata: []byte(`{"a":1}`), Owner: "o", Adopt: true,
	})
	if diff := cmp.Diff(&pb.PushSecretResponse{Changed: true, Revision: "7"}, push, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("PushSecret: %v (-want +got):\n%s", err, diff)
	}

	if diff := cmp.Diff(provider.Push{Key: "k", Property: "p", Value: []byte{0, 255}, IfNotExists: true, Settings: []byte(`{"a":1}`), Owner: "o", Adopt: true}, pushed); diff != "" {
		t.Errorf("what the store was asked to push (-want +got):\n%s", diff)
	}

	remove, err := p.secrets.DeleteSecret(p.context(), &pb.DeleteSecretRequest{Context: callContext(), Key: "k", Property: "p", Owner: "o"})
	if err != nil || !remove.GetChanged() {
		t.Errorf("DeleteSecret: %v, %v", remove, err)
	}

	if diff := cmp.Diff(provider.Deletion{Key: "k", Property: "p", Owner: "o"}, deleted); diff != "" {
		t.Errorf("what the store was asked to delete (-want +got):\n%s", diff)
	}

	exists, err := p.secrets.SecretExists(p.context(), &pb.SecretExistsRequest{Context: callContext(), Key: "k", Property: "p"})
	if err != nil || !exists.GetExists() || asked != "k#p" {
		t.Errorf("SecretExists of %s: %v, %v", asked, exists, err)
	}
}

// Nothing of this may reach a store: the harness's has no functions, and would
// panic.
func TestChecksWrites(t *testing.T) {
	p := start(t, &backend{}, Options{})

	for _, test := range []struct {
		name, why string
		err       error
	}{
		{"push without a key", "its destination would be undefined", second(p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{Context: callContext(), Owner: "o"}))},
		{"push without an owner", "ownership could not be determined", second(p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{Context: callContext(), Key: "k"}))},
		{"push with an unknown policy", "it may forbid what is done", second(p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{Context: callContext(), Key: "k", Owner: "o", UpdatePolicy: 9}))},
		{"delete without a key", "the object to delete would be undefined", second(p.secrets.DeleteSecret(p.context(), &pb.DeleteSecretRequest{Context: callContext(), Owner: "o"}))},
		{"delete without an owner", "ownership could not be determined", second(p.secrets.DeleteSecret(p.context(), &pb.DeleteSecretRequest{Context: callContext(), Key: "k"}))},
		{"exists without a key", "there is nothing to look for", second(p.secrets.SecretExists(p.context(), &pb.SecretExistsRequest{Context: callContext()}))},
		{"watch of too many keys", "they are kept as long as it lasts", watched(p, &pb.WatchRequest{Context: callContext(), Keys: strings.Split(strings.Repeat("k,", maxWatchedKeys), ",")})},
	} {
		t.Run(test.name, func(t *testing.T) {
			if status.Code(test.err) != codes.InvalidArgument {
				t.Errorf("%s: %v", test.why, test.err)
			}
		})
	}
}

// A login that ended is one the provider can renew: the caller need not know.
func TestWritesMakeARefusedStoreAnew(t *testing.T) {
	calls := 0
	p := start(t, &backend{remove: func(context.Context, provider.Deletion) (bool, error) {
		if calls++; calls == 2 {
			return false, provider.Unauthenticated("the token has expired")
		}

		return true, nil
	}}, Options{})

	for range 2 {
		if _, err := p.secrets.DeleteSecret(p.context(), &pb.DeleteSecretRequest{Context: callContext(), Key: "k", Owner: "o"}); err != nil {
			t.Fatal(err)
		}
	}

	if made, _ := p.counts(); made != 2 || calls != 3 {
		t.Errorf("%d stores created and %d calls, want 2 and 3", made, calls)
	}
}

func TestWatch(t *testing.T) {
	tells := make(chan provider.Change)
	p := start(t, &backend{
		watch: func(ctx context.Context, keys []string, tell func(provider.Change) error) error {
			if diff := cmp.Diff([]string{"a", "b"}, keys); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}

			if err := tell(provider.Change{}); err != nil {
				return err
			}

			for {
				select {
				case change := <-tells:
					if err := tell(change); err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
		exists: func(context.Context, string, string) (bool, error) { return false, provider.Unauthenticated("revoked") },
	}, Options{drain: time.Millisecond})

	stream, err := p.secrets.Watch(p.context(), &pb.WatchRequest{Context: callContext(), Keys: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}

	next := func(why string, want *pb.WatchResponse) {
		t.Helper()

		got, err := stream.Recv()
		if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Fatalf("%s: %v (-want +got):\n%s", why, err, diff)
		}
	}

	next("the first answer means that the watch is established", &pb.WatchResponse{})

	tells <- provider.Change{Keys: []string{"a"}}

	next("a change", &pb.WatchResponse{Keys: []string{"a"}})

	tells <- provider.Change{Keys: []string{"\xff"}}

	next("a key that cannot travel", &pb.WatchResponse{Resync: true})

	// Another call finds the login ended, and the store is discarded.
	_, _ = p.secrets.SecretExists(p.context(), &pb.SecretExistsRequest{Context: callContext(), Key: "k"})

	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "watch again") {
		t.Errorf("the watch of a store that was discarded: %v", err)
	}

	if stream, err = p.secrets.Watch(p.context(), &pb.WatchRequest{Context: callContext(), Keys: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}

	next("a new watch", &pb.WatchResponse{})
	p.stop()

	began := time.Now()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || time.Since(began) > patience/2 {
		t.Errorf("the watch of a provider that stops: %v after %s", err, time.Since(began))
	}

	select {
	case err := <-p.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience / 2):
		t.Error("a watch kept the process from its end")
	}
}

func TestCountsCallsOfTheBackend(t *testing.T) {
	p := start(t, &backend{construct: func(_ context.Context, env provider.Environment) error {
		env.Calls.Called("Login", "200", time.Second)
		env.Calls.Called("Login", "503", time.Second)
		env.Calls.Called("Login", "error", time.Second)

		return provider.Unavailable("down")
	}}, Options{MetricsListen: "127.0.0.1:0"})

	_, _ = p.read("a")

	metrics := p.metrics()
	for _, line := range []string{
		`externalsecrets_provider_backend_calls_total{call="Login",code="200",status="success"} 1`,
		`externalsecrets_provider_backend_calls_total{call="Login",code="503",status="error"} 1`,
		`externalsecrets_provider_backend_calls_total{call="Login",code="error",status="error"} 1`,
		`externalsecrets_provider_backend_duration_seconds_count{call="Login"} 3`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
