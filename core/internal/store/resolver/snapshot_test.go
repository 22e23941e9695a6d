package resolver

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/circuit"
	"github.com/external-secrets/eso/core/store"
)

// One tenant's typo must not keep the others of a shared store from it.
func TestVerdictOn(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  string
		err  store.Error
		want circuit.Verdict
	}{
		{"a rejected login concerns all callers", store.Error{Code: codes.Unauthenticated}, circuit.Certain},
		{"a backend that throttles", store.Error{Code: codes.ResourceExhausted, Reason: pb.ReasonThrottled}, circuit.Certain},
		{"an answer that is too large concerns one caller", store.Error{Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge}, circuit.Neutral},
		{"a mount that does not exist may stand in a key", store.Error{Code: codes.FailedPrecondition, Reason: pb.ReasonInvalidConfig}, circuit.Neutral},
		{"a right that is missing may be that of a path", store.Error{Code: codes.PermissionDenied}, circuit.Neutral},
		{"a call that was lost", store.Error{Code: codes.Unavailable}, circuit.Suspect},
		{"a call that took too long", store.Error{Code: codes.DeadlineExceeded}, circuit.Suspect},
	} {
		if got := verdictOn(&c.err); got != c.want {
			t.Errorf("%s: %d, not %d", c.why, got, c.want)
		}
	}
}
