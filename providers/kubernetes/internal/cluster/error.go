package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"
)

// Error converts the error of a request to an API server, which the text names,
// such as `read Secret "a"`. A response is quoted only if it is an API server's
// own status: any other could be a page of the provider's network.
func Error(what string, err error) error {
	if err == nil {
		return nil
	}

	var (
		typed  *provider.Error
		status apierrors.APIStatus
	)

	if large, ok := backend.TooLarge(err); ok {
		return large
	}

	switch {
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &status):
		because, _ := backend.Reason(err, backend.Fields{Server: "spec.server", CA: "spec.server.caBundle or spec.server.caProvider"})

		return provider.Unavailable("cannot %s: the API server does not answer: %s", what, because)
	}

	answer := status.Status()
	own := !apierrors.IsUnexpectedServerError(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)

	because := http.StatusText(int(answer.Code))
	if own && answer.Message != "" {
		because = brief(answer.Message)
	}

	switch {
	// Only a status that names the object proves that it does not exist.
	case apierrors.IsNotFound(err) && own && answer.Details != nil && answer.Details.Name != "":
		return provider.NotFound("cannot %s: %s", what, because)
	case apierrors.IsNotFound(err):
		return provider.InvalidConfig("cannot %s: the server has no such path: %s", what, because)
	case apierrors.IsUnauthorized(err):
		return provider.Unauthenticated("cannot %s: the API server refuses the login: %s", what, because)
	case apierrors.IsForbidden(err):
		return provider.AccessDenied("cannot %s: %s", what, because)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &provider.Error{Code: codes.Aborted, Reason: pb.ReasonUnavailable, Message: fmt.Sprintf("cannot %s: another client writes it at the same time", what)}
	case apierrors.IsTooManyRequests(err):
		seconds, _ := apierrors.SuggestsClientDelay(err)

		return provider.Throttled(time.Duration(seconds)*time.Second, "cannot %s: the API server throttles the requests", what)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return provider.InvalidRequest("cannot %s: the API server refuses: %s", what, http.StatusText(int(answer.Code)))
	default:
		return provider.Unavailable("cannot %s: the API server answers %d: %s", what, answer.Code, because)
	}
}

// brief returns an API server's message on one line of bounded length.
func brief(text string) string {
	const most = 300

	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}

	return text
}
