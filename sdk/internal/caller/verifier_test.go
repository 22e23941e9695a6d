package caller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const audience = "spiffe://external-secrets.io/provider/test"

// reviews answers TokenReviews: of a token it says what the test says.
type reviews struct {
	client.Client

	status map[string]authenticationv1.TokenReviewStatus
	err    error
	asked  atomic.Int32
}

func (r *reviews) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	r.asked.Add(1)

	review, ok := object.(*authenticationv1.TokenReview)
	if !ok || len(review.Spec.Audiences) != 1 || review.Spec.Audiences[0] != audience {
		return errors.New("not the review that was expected")
	}

	review.Status = r.status[review.Spec.Token]

	return r.err
}

func user(name string, audiences ...string) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}, Audiences: audiences}
}

func carrying(t *testing.T, values ...string) context.Context {
	t.Helper()

	md := metadata.MD{}
	md.Append(pb.TokenMetadata, values...)

	return metadata.NewIncomingContext(t.Context(), md)
}

func call() *pb.CallContext {
	return &pb.CallContext{Config: &pb.ConfigReference{Namespace: "tenant"}}
}

func TestVerify(t *testing.T) {
	t.Parallel()

	operator := types.NamespacedName{Namespace: "eso", Name: "operator"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", errors.New("no"))

	for _, c := range []struct {
		why      string
		accounts []types.NamespacedName
		carried  []string
		unknown  bool // the provider does not know its audience
		err      error
		want     string
		code     codes.Code
	}{
		{why: "no token is needed, none is there"},
		{why: "a token is needed, none is there", accounts: []types.NamespacedName{operator}, want: "takes calls of eso/operator only"},
		{why: "the operator's", accounts: []types.NamespacedName{operator}, carried: []string{"Bearer operator"}},
		{why: "another one where the operator's is needed", accounts: []types.NamespacedName{operator}, carried: []string{"Bearer tenant"}, want: "ServiceAccount tenant/reader"},
		{why: "one of the config's namespace", carried: []string{"Bearer tenant"}},
		{why: "one of another tenant", carried: []string{"Bearer other"}, want: "not in the namespace of the config"},
		{why: "one that does not hold", carried: []string{"Bearer bad"}, want: "does not hold for audience"},
		{why: "one for another audience", carried: []string{"Bearer elsewhere"}, want: `is for ["aws"]`},
		{why: "one of an API server without audiences", carried: []string{"Bearer unaware"}, want: "is for []"},
		{why: "a person's", carried: []string{"Bearer person"}, want: `user "admin", which is no ServiceAccount`},
		{why: "a person whose name begins like a ServiceAccount's", carried: []string{"Bearer sneaky"}, want: "which is no ServiceAccount"},
		{why: "two tokens", carried: []string{"Bearer tenant", "Bearer operator"}, want: "carries 2 tokens"},
		{why: "no bearer", carried: []string{"Basic dXNlcg=="}, want: "not Bearer and a token"},
		{why: "a token without end", carried: []string{"Bearer " + strings.Repeat("x", maxTokenBytes+1)}, want: "at most 16384 bytes"},
		{why: "a provider without an audience", carried: []string{"Bearer tenant"}, unknown: true, want: "--token-audience"},
		{why: "a provider that may not review", carried: []string{"Bearer tenant"}, err: forbidden, want: "external-secrets-provider-tokens"},
		{why: "an API server that fails", carried: []string{"Bearer tenant"}, err: apierrors.NewInternalError(errors.New("token tenant")), want: "answers InternalError", code: codes.Unavailable},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			r := &reviews{err: c.err, status: map[string]authenticationv1.TokenReviewStatus{
				"operator":  user("system:serviceaccount:eso:operator", audience),
				"tenant":    user("system:serviceaccount:tenant:reader", audience),
				"other":     user("system:serviceaccount:other:reader", audience),
				"elsewhere": user("system:serviceaccount:tenant:reader", "aws"),
				"unaware":   user("system:serviceaccount:tenant:reader"),
				"person":    user("admin", audience),
				"sneaky":    user("system:serviceaccount:", audience),
			}}
			v := New(Options{Client: r, Accounts: c.accounts, Audience: func() string {
				if c.unknown {
					return ""
				}

				return audience
			}})

			err := v.Verify(carrying(t, c.carried...), call())
			if c.want == "" {
				if err != nil {
					t.Errorf("err = %v", err)
				}

				return
			}

			if c.code == codes.OK {
				c.code = codes.Unauthenticated
			}

			typed, ok := errors.AsType[*provider.Error](err)
			if !ok || typed.Code != c.code || !typed.StoreScope || !strings.Contains(typed.Message, c.want) || strings.Contains(typed.Message, "token tenant") {
				t.Errorf("err = %#v; want %q", err, c.want)
			}
		})
	}
}

// A verdict is kept for a while, a bad one shortly, and many calls at once ask
// once.
func TestVerdictsAreKept(t *testing.T) {
	t.Parallel()

	r := &reviews{status: map[string]authenticationv1.TokenReviewStatus{"good": user("system:serviceaccount:tenant:reader", audience)}}
	now := time.Now()
	v := New(Options{Client: r, Audience: func() string { return audience }, Now: func() time.Time { return now }})

	verify := func(token string, want bool) {
		t.Helper()

		if err := v.Verify(carrying(t, "Bearer "+token), call()); (err == nil) != want {
			t.Errorf("%s: err = %v", token, err)
		}
	}

	failed := make(chan error, 50)
	for range cap(failed) {
		go func() { failed <- v.Verify(carrying(t, "Bearer good"), call()) }()
	}

	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}

	verify("bad", false)
	verify("bad", false)

	if asked := r.asked.Load(); asked != 2 {
		t.Errorf("%d reviews for two tokens", asked)
	}

	// The ServiceAccount was deleted and created again.
	r.status = map[string]authenticationv1.TokenReviewStatus{"bad": user("system:serviceaccount:tenant:reader", audience)}
	now = now.Add(badFor)

	verify("bad", true)
	verify("good", true)

	now = now.Add(goodFor)

	verify("good", false)
	verify("bad", true)

	// A clock that was set back does not keep a verdict for longer.
	now = now.Add(-24 * time.Hour)
	r.status = nil

	verify("bad", false)
}
