package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, spec v2alpha1.FakeSpec) *Store {
	t.Helper()

	s, err := newMemory().New(t.Context(), provider.Environment{}, &v2alpha1.Fake{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestRead(t *testing.T) {
	t.Parallel()

	s := open(t, v2alpha1.FakeSpec{Data: []v2alpha1.FakeSecret{
		{Key: "db", Version: "1", Value: "old"},
		{Key: "db", Version: "2", Value: `{"user":"app"}`, Metadata: map[string]string{"team": "a"}},
		{Key: "binary", BinaryValue: []byte{0, 0xff}},
	}})

	for _, c := range []struct {
		why  string
		read provider.Read
		want string
		code codes.Code
	}{
		{"the last version listed is the latest", provider.Read{Key: "db", Property: "user"}, "app", codes.OK},
		{"a version", provider.Read{Key: "db", Version: "1"}, "old", codes.OK},
		{"bytes come as they are", provider.Read{Key: "binary"}, "\x00\xff", codes.OK},
		{"metadata", provider.Read{Key: "db", Metadata: true, Property: "team"}, "a", codes.OK},
		{"no metadata is an empty object", provider.Read{Key: "binary", Metadata: true}, "{}", codes.OK},
		{"a version that is not there", provider.Read{Key: "db", Version: "3"}, "", codes.NotFound},
		{"a key that is not there", provider.Read{Key: "nothing"}, "", codes.NotFound},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got := s.Read(t.Context(), []provider.Read{c.read})[0]
			if c.code != codes.OK {
				if got.Err == nil || provider.AsError(got.Err).Code != c.code {
					t.Errorf("err = %v; want %s", got.Err, c.code)
				}

				return
			}

			if got.Err != nil || string(got.Value) != c.want || got.Revision == "" {
				t.Errorf("result %+v; want %q with a revision", got, c.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()

	for code, want := range map[string]codes.Code{
		"Unavailable": codes.Unavailable, "Unauthenticated": codes.Unauthenticated, "PermissionDenied": codes.PermissionDenied,
		"ResourceExhausted": codes.ResourceExhausted, "Internal": codes.Internal,
	} {
		s := open(t, v2alpha1.FakeSpec{Error: &v2alpha1.FakeError{Code: code, Message: "as asked", RetryAfter: &metav1.Duration{Duration: time.Minute}}})

		got := provider.AsError(s.Read(t.Context(), []provider.Read{{Key: "a"}})[0].Err)
		if got.Code != want || got.Message != "as asked" || (want == codes.ResourceExhausted) != (got.RetryAfter == time.Minute) {
			t.Errorf("%s: %+v", code, got)
		}

		if _, err := s.Validate(t.Context()); provider.AsError(err).Code != want {
			t.Errorf("%s: Validate: %v", code, err)
		}
	}
}

func TestLatencyEndsWithTheCall(t *testing.T) {
	t.Parallel()

	s := open(t, v2alpha1.FakeSpec{Data: []v2alpha1.FakeSecret{{Key: "a"}}, Latency: &metav1.Duration{Duration: time.Hour}})

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if got := provider.AsError(s.Read(ctx, []provider.Read{{Key: "a"}})[0].Err); got.Code != codes.DeadlineExceeded {
		t.Errorf("err = %v", got)
	}
}

// Latency is added to a read and to a validation, and to no more: the keys of a
// batch are read at the same time.
func TestLatency(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := open(t, v2alpha1.FakeSpec{
			Data:    []v2alpha1.FakeSecret{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}},
			Latency: &metav1.Duration{Duration: 3 * time.Second},
		})
		began := time.Now()

		results := s.Read(t.Context(), []provider.Read{{Key: "a"}, {Key: "b"}})
		if took := time.Since(began); took != 3*time.Second || string(results[0].Value)+string(results[1].Value) != "12" {
			t.Errorf("%+v after %s", results, took)
		}

		began = time.Now()

		if _, err := s.Validate(t.Context()); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("Validate: %v after %s", err, time.Since(began))
		}
	})
}

// Equal revisions mean equal answers, and nothing else makes them equal.
func TestRevision(t *testing.T) {
	t.Parallel()

	spec := v2alpha1.FakeSpec{Data: []v2alpha1.FakeSecret{{Key: "a", Value: "1", Metadata: map[string]string{"x": "y"}}}}
	first := open(t, spec).Read(t.Context(), []provider.Read{{Key: "a"}})[0]

	again := open(t, spec).Read(t.Context(), []provider.Read{{Key: "a", KnownRevision: first.Revision}})[0]
	if !again.NotModified || again.Value != nil {
		t.Errorf("another store of the same config: %+v", again)
	}

	if metadata := open(t, spec).Read(t.Context(), []provider.Read{{Key: "a", Metadata: true, KnownRevision: first.Revision}})[0]; metadata.NotModified {
		t.Error("the metadata has the revision of the value")
	}

	spec.Data[0].Value = "2"

	if changed := open(t, spec).Read(t.Context(), []provider.Read{{Key: "a", KnownRevision: first.Revision}})[0]; changed.NotModified || string(changed.Value) != "2" {
		t.Errorf("a changed value: %+v", changed)
	}
}

func TestNotFoundSaysWhat(t *testing.T) {
	t.Parallel()

	s := open(t, v2alpha1.FakeSpec{Data: []v2alpha1.FakeSecret{{Key: "a", Version: "1", Value: "x"}}})

	for _, c := range []struct {
		why  string
		read provider.Read
		want string
	}{
		{"the key is not there", provider.Read{Key: "b", Version: "1"}, `secret "b" does not exist`},
		{"the key is there and the version is not", provider.Read{Key: "a", Version: "2"}, `secret "a" has no version "2"`},
	} {
		if got := s.Read(t.Context(), []provider.Read{c.read})[0].Err; got == nil || got.Error() != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}

	s = open(t, v2alpha1.FakeSpec{Error: &v2alpha1.FakeError{Code: "Unavailable"}})
	if got := s.Read(t.Context(), []provider.Read{{Key: "a"}})[0].Err; got == nil || got.Error() == "" {
		t.Errorf("a fault without a message: %v", got)
	}

	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Pushed secrets take precedence over the list, and are kept when the store is
// created again, as after every change of the config.
func TestPushesAreRemembered(t *testing.T) {
	memory := newMemory()
	open := func() *Store {
		s, err := memory.New(t.Context(), provider.Environment{}, &v2alpha1.Fake{Spec: v2alpha1.FakeSpec{Data: []v2alpha1.FakeSecret{{Key: "listed", Value: "old"}}}})
		if err != nil {
			t.Fatal(err)
		}

		return s
	}

	if _, err := open().Push(t.Context(), provider.Push{Key: "listed", Value: []byte("new"), Owner: "me"}); provider.AsError(err).Reason != "NOT_OWNED" {
		t.Errorf("a push over the list: %v", err)
	}

	for _, want := range []bool{true, false} {
		pushed, err := open().Push(t.Context(), provider.Push{Key: "listed", Value: []byte("new"), Owner: "me", Adopt: true})
		if err != nil || pushed.Changed != want {
			t.Errorf("a push that adopts: changed is %t, %v", pushed.Changed, err)
		}
	}

	if got := open().Read(t.Context(), []provider.Read{{Key: "listed"}})[0]; string(got.Value) != "new" {
		t.Errorf("read %q, %v", got.Value, got.Err)
	}

	if changed, err := open().Delete(t.Context(), provider.Deletion{Key: "listed", Owner: "me"}); err != nil || !changed {
		t.Errorf("delete: %t, %v", changed, err)
	}

	if there, err := open().Exists(t.Context(), "listed", ""); err != nil || there {
		t.Errorf("it is still there (%v)", err)
	}
}
