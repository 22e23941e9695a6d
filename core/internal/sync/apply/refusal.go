package apply

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/core/internal/sync/render"
)

// writeError says why a target could not be written; nil where it could.
func writeError(target *render.Target, secretType string, err error) error {
	if err == nil {
		return nil
	}

	text, noun, name := err.Error(), target.Noun(), target.Name

	switch {
	case apierrors.IsConflict(err) && strings.Contains(text, "uid mismatch"):
		return &GoneError{Kind: noun, Name: name}
	case apierrors.IsInvalid(err) && strings.Contains(text, "Only one reference can have Controller set to true"):
		return &OwnershipError{Message: fmt.Sprintf("%s %q is owned by another controller; name another target in spec.target.name", noun, name)}
	case otherType(err) && target.IsSecret():
		return &OwnershipError{Message: fmt.Sprintf("Secret %q exists with another type than %s, and a Secret's type cannot change; delete it or name another target in spec.target.name", name, secretType)}
	case apierrors.IsInvalid(err) && strings.Contains(text, "field is immutable when `immutable` is set"):
		return &OwnershipError{Message: fmt.Sprintf("%s %q is immutable, and differs from what it should be; delete it, set spec.target.immutable, or name another target in spec.target.name", noun, name)}
	default:
		return fmt.Errorf("cannot write %s %q: %w", noun, name, scrub(err))
	}
}

// otherType reports whether the API server refuses a Secret because it has
// another type.
func otherType(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "type: Invalid value")
}

// harmless lists the API server's reasons whose texts name the request and
// never quote what it holds.
func harmless(reason metav1.StatusReason) bool {
	switch reason {
	case metav1.StatusReasonUnauthorized,
		metav1.StatusReasonForbidden, // quotas, too
		metav1.StatusReasonNotFound,
		metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict,
		metav1.StatusReasonGone,
		metav1.StatusReasonServerTimeout,
		metav1.StatusReasonTimeout,
		metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonRequestEntityTooLarge,
		metav1.StatusReasonMethodNotAllowed,
		metav1.StatusReasonServiceUnavailable:
		return true
	default:
		return false
	}
}

var (
	// admission finds who refused, or failed, in the words of the API server.
	// The following text is that of a webhook or a policy, under any reason: it may
	// quote the object.
	admission = regexp.MustCompile(`^.{0,300}?(admission webhook "[^"]*" denied|failed calling webhook "[^"]*"|ValidatingAdmissionPolicy '[^']*'|denied request|denied the request)`)
	// typedField finds the field in what is said of an object that does not have
	// its kind's form: only the first, since whatever follows may be a value.
	typedField = regexp.MustCompile(`^failed to create [a-z ]+ \([^)]*\): (?:errors:\s+)?((?:\.[A-Za-z0-9_-]+|\[\d+\])+)`)
)

// scrub keeps the API server's answer from quoting the object it refused: of
// what is not known to be harmless, only the code and the fields are reported.
func scrub(err error) error {
	// An interface that is no error itself: errors.AsType does not take it.
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}

	status := answer.Status()

	if found := admission.FindStringSubmatch(status.Message); found != nil {
		return fmt.Errorf("the API server refuses it: %s (%s); the rest of its words may quote the target and is left out", found[1], code(status))
	}

	if harmless(status.Reason) {
		return err
	}

	var fields []string

	if details := status.Details; details != nil && status.Reason == metav1.StatusReasonInvalid {
		for _, cause := range details.Causes {
			fields = append(fields, cause.Field+" ("+string(cause.Type)+")")
		}
	}

	if found := typedField.FindStringSubmatch(status.Message); found != nil {
		fields = append(fields, found[1]+" (not of the form that its kind asks for)")
	}

	if len(fields) == 0 {
		return fmt.Errorf("the API server refuses it (%s)", code(status))
	}

	return fmt.Errorf("the API server refuses it: %s", strings.Join(fields, ", "))
}

// code of an answer, for people.
func code(status metav1.Status) string {
	text := fmt.Sprintf("%d %s", status.Code, http.StatusText(int(status.Code)))
	if status.Reason != "" {
		text += ", reason " + string(status.Reason)
	}

	return text
}
