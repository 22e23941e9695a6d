package store

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
)

func open(t *testing.T, spec v2alpha1.FakeSpec) *Store {
	t.Helper()

	s, err := New(t.Context(), provider.Environment{}, &v2alpha1.Fake{Spec: spec})
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
