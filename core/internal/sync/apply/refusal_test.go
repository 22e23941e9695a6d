package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
)

// Of the API server's error for a rejected object, only those parts are reported
// that cannot contain a value.
func TestScrub(t *testing.T) {
	t.Parallel()

	const canary = "hunter2"

	answer := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
	}
	things := schema.GroupResource{Group: "example.com", Resource: "things"}

	for _, c := range []struct {
		why  string
		err  error
		want string
	}{
		{
			"a field of another type", answer(500, "", "failed to create typed patch object (ns/app; example.com/v1, Kind=Thing): .spec.x: expected boolean, got "+canary),
			"the API server refuses it: .spec.x (not of the form that its kind asks for)",
		},
		{
			"a number, in Go's words", answer(500, "", "failed to create typed patch object (ns/app; /v1, Kind=ConfigMap): .data.pin: expected string, got &value.valueUnstructured{Value:\""+canary+"\"}"),
			"the API server refuses it: .data.pin (not of the form that its kind asks for)",
		},
		{
			"several, of which the others' paths may be part of a value", answer(500, "", "failed to create typed patch object (ns/app; /v1, Kind=ConfigMap): errors:\n  .data.pin: expected string, got x\n  ."+canary+": y"),
			"the API server refuses it: .data.pin (not of the form that its kind asks for)",
		},
		{
			"an item, whose key may be a value", answer(500, "", `failed to create typed patch object (ns/app; x/v1, Kind=Thing): .spec.list[0].ports[name="`+canary+`"].x: expected`),
			"the API server refuses it: .spec.list[0].ports (not of the form that its kind asks for)",
		},
		{"anything else that fails in it", answer(500, "InternalError", "cannot convert "+canary), "the API server refuses it (500 Internal Server Error, reason InternalError)"},
		{"a request that it does not understand", apierrors.NewBadRequest(canary + " is no boolean"), "the API server refuses it (400 Bad Request, reason BadRequest)"},
		{
			"a field that is not valid",
			&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: canary, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.labels", Message: canary},
			}}}},
			"the API server refuses it: metadata.labels (FieldValueInvalid)",
		},
		{
			"a webhook, whatever reason it gives", answer(403, "Forbidden", `admission webhook "policy.example.com" denied the request: the value `+canary+" is too short"),
			`the API server refuses it: admission webhook "policy.example.com" denied (403 Forbidden, reason Forbidden); the rest`,
		},
		{
			"a webhook that fails", answer(500, "InternalError", `Internal error occurred: failed calling webhook "policy.example.com": got `+canary),
			`the API server refuses it: failed calling webhook "policy.example.com" (500`,
		},
		{
			"a policy", answer(422, "Invalid", `things.example.com "app" is forbidden: ValidatingAdmissionPolicy 'short' with binding 'all' denied request: `+canary),
			`the API server refuses it: ValidatingAdmissionPolicy 'short' (422`,
		},
		{
			"a right that is missing", apierrors.NewForbidden(things, "app", errors.New("User x cannot patch")),
			`things.example.com "app" is forbidden: User x cannot patch`,
		},
		{"a kind that is gone", apierrors.NewNotFound(things, "app"), `things.example.com "app" not found`},
		{"a network that fails", errors.New("dial tcp: connection refused"), "dial tcp: connection refused"},
	} {
		got := scrub(fmt.Errorf("wrapped: %w", c.err)).Error()
		if !strings.HasPrefix(strings.TrimPrefix(got, "wrapped: "), c.want) || strings.Contains(got, canary) {
			t.Errorf("%s: %q; want %q", c.why, got, c.want)
		}
	}
}

// Only what is gone is looked for again at once: a kind that is gone stays so.
func TestWriteErrorTellsWhatIsGone(t *testing.T) {
	t.Parallel()

	target := &render.Target{Target: plan.Target{Name: "app"}}
	resource := schema.GroupResource{Resource: "things"}

	for _, c := range []struct {
		why  string
		err  error
		want bool
	}{
		{"the object that was seen", apierrors.NewConflict(resource, "app", errors.New("uid mismatch: the provided object specified uid 1, and no existing object was found")), true},
		{"its kind", apierrors.NewNotFound(resource, "app"), false},
		{"a concurrent update", apierrors.NewConflict(resource, "app", errors.New("the object has been modified")), false},
	} {
		err := writeError(target, "", c.err)
		if _, gone := errors.AsType[*GoneError](err); gone != c.want {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}
