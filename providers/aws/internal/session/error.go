package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// unknownError is the SDK's code for an answer without one.
	unknownError = "UnknownError"
	// throttlePause is the time until the next attempt if AWS gives none.
	throttlePause = 5 * time.Second
	// maxText bounds the quoted part of AWS's own errors, in bytes.
	maxText = 300
	// minHidden is the shortest text that is searched for in errors, in bytes.
	minHidden = 4
)

// own marks errors of this provider, which the SDK must not retry.
func own(err error) aws.Ternary {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return aws.FalseTernary
	}

	return aws.UnknownTernary
}

// meaning of an error of AWS.
type meaning int

const (
	unclear meaning = iota
	notFound
	denied
	undecryptable
	refused
	expired
	throttled
	conflict
	invalid
	down
)

// meaningOf an error code of Secrets Manager, Parameter Store or STS.
func meaningOf(code string) meaning {
	switch strings.TrimSuffix(code, "Exception") {
	case "ResourceNotFound", "ParameterNotFound", "ParameterVersionNotFound":
		return notFound
	case "AccessDenied", "KMSAccessDenied", "NotAuthorized", "UnauthorizedOperation":
		return denied
	case "DecryptionFailure", "EncryptionFailure", "InvalidKeyId", "KMSInvalidState", "KMSDisabled", "KMSNotFound":
		return undecryptable
	case "UnrecognizedClient", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidSignature", "IncompleteSignature",
		"MissingAuthenticationToken", "AuthFailure", "InvalidAccessKeyId", "InvalidToken",
		"InvalidIdentityToken", "IDPRejectedClaim":
		return refused
	case "ExpiredToken", "RequestExpired", "TokenRefreshRequired":
		return expired
	case "Throttling", "Throttled", "TooManyRequests", "RequestLimitExceeded", "RequestThrottled", "BandwidthLimitExceeded",
		"SlowDown", "ProvisionedThroughputExceeded", "TransactionInProgress", "PriorRequestNotComplete":
		return throttled
	case "ResourceExists", "ParameterAlreadyExists", "TooManyUpdates":
		return conflict
	case "InternalService", "InternalServiceError", "InternalServerError", "InternalFailure", "ServiceUnavailable",
		"IDPCommunicationError", "RequestTimeout", "RequestTimeTooSkewed":
		return down
	case "", unknownError:
		return unclear
	default:
		return invalid
	}
}

// Error returns the error of a call of AWS, which the text names: "read secret
// x". The session's credentials and the hidden values, such as one that was to be
// written, are removed from it.
func (s *Session) Error(ctx context.Context, err error, what string, hidden ...[]byte) error {
	var typed *provider.Error

	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		return typed
	case ctx.Err() != nil:
		return ctx.Err()
	}

	if large, ok := backend.TooLarge(err); ok {
		large.Message = "cannot " + what + ": " + large.Message

		return large
	}

	if refusal, ok := errors.AsType[smithy.APIError](err); ok {
		return s.refusal(err, refusal, what, hidden)
	}

	var (
		params smithy.InvalidParamsError
		sent   *smithyhttp.RequestSendError
		read   *smithy.DeserializationError
	)

	switch {
	case errors.As(err, &params):
		return provider.InvalidRequest("cannot %s: %s", what, s.brief(params.Error(), hidden))
	case errors.As(err, &sent):
		return provider.Unavailable("cannot %s: AWS does not answer: %s", what, s.brief(sent.Err.Error(), hidden))
	case errors.As(err, &read):
		return provider.Unavailable("cannot %s: the server answers %d, and not as AWS does%s", what, status(err), reference(err))
	default:
		return provider.Unavailable("cannot %s: %s", what, s.brief(err.Error(), hidden))
	}
}

// Refusal is the error of one item of a batch, in AWS's own terms.
func (s *Session) Refusal(code, message, what string) error {
	return s.refusal(nil, &smithy.GenericAPIError{Code: code, Message: message}, what, nil)
}

func (s *Session) refusal(err error, refusal smithy.APIError, what string, hidden [][]byte) error {
	code, because, id := refusal.ErrorCode(), s.brief(refusal.ErrorMessage(), hidden), reference(err)
	if len(hidden) > 0 {
		because = withoutValue(because)
	}

	if because != "" {
		because = ": " + because
	}

	status, after := status(err), time.Duration(0)

	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && response.Response != nil {
		after = retryAfter(response.Response.Header)
	}

	meant := meaningOf(code)

	switch {
	case status == http.StatusTooManyRequests:
		meant = throttled
	case status >= http.StatusInternalServerError && meant != throttled:
		meant = down
	}

	switch meant {
	case notFound:
		return provider.NotFound("cannot %s: it does not exist (%s%s)%s", what, code, because, id)
	case denied:
		return provider.AccessDenied("cannot %s: AWS refuses (%s%s)%s", what, code, because, id)
	case undecryptable:
		return provider.AccessDenied("cannot %s: its KMS key does not let the caller in, or cannot be used: the caller needs kms:Decrypt, and kms:GenerateDataKey to write (%s%s)%s", what, code, because, id)
	case refused:
		// AWS's message is left out: it may contain the signed request, with the
		// session's token.
		return provider.Unauthenticated("cannot %s: AWS does not accept the credentials (%s)%s", what, code, id)
	case expired:
		return provider.Unauthenticated("cannot %s: the credentials have expired (%s)%s", what, code, id)
	case throttled:
		if after <= 0 {
			after = throttlePause
		}

		return provider.Throttled(after, "cannot %s: AWS throttles the requests (%s%s)%s", what, code, because, id)
	case conflict:
		return &provider.Error{
			Code: codes.Aborted, Reason: pb.ReasonUnavailable,
			Message: fmt.Sprintf("cannot %s: another client changes it at the same time (%s%s)%s", what, code, because, id),
		}
	case invalid:
		return provider.InvalidRequest("cannot %s: AWS refuses (%s%s)%s", what, code, because, id)
	case down:
		return provider.Unavailable("cannot %s: AWS fails (%s%s)%s", what, code, because, id)
	case unclear:
		fallthrough
	default:
		// A response that is not in AWS's format may be any page of the
		// provider's network, and proves nothing.
		return provider.Unavailable("cannot %s: the server answers %d, and not as AWS does%s", what, status, id)
	}
}

// loginError returns the error of a login, with which every call fails.
func (s *Session) loginError(ctx context.Context, err error, what string) error {
	failed := s.Error(ctx, err, what)
	if ctx.Err() != nil {
		return provider.Unavailable("cannot %s: it takes too long", what)
	}

	typed := *provider.AsError(failed)

	if _, refused := errors.AsType[smithy.APIError](err); refused {
		switch typed.Code {
		case codes.PermissionDenied, codes.InvalidArgument, codes.NotFound:
			return provider.Unauthenticated("%s", typed.Message)
		default:
		}
	}

	typed.StoreScope = true

	return &typed
}

// Check returns an error unless AWS accepts the credentials. If STS cannot be
// reached, as in a network without a route to it, probe decides: a call of the
// service itself, which AWS may refuse for any reason but the credentials.
func (s *Session) Check(ctx context.Context, probe func(context.Context) error) (provider.Validation, error) {
	caller, err := s.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err == nil {
		return provider.Validation{Message: "logged in as " + aws.ToString(caller.Arn)}, nil
	}

	var typed *provider.Error

	failed := provider.AsError(s.Error(ctx, err, "get the caller identity from STS"))
	if errors.As(err, &typed) || ctx.Err() != nil || (failed.Code != codes.Unavailable && failed.Code != codes.PermissionDenied) {
		return provider.Validation{}, failed
	}

	if err := probe(ctx); err != nil {
		switch provider.AsError(err).Code {
		case codes.NotFound, codes.PermissionDenied:
		default:
			return provider.Validation{}, err
		}
	}

	return provider.Validation{Warnings: []string{failed.Message}}, nil
}

// brief returns AWS's message on one line of bounded length, without hidden
// values.
func (s *Session) brief(text string, hidden [][]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, known := range s.hidden {
		hidden = append(hidden, []byte(known.AccessKeyID), []byte(known.SecretAccessKey), []byte(known.SessionToken))
	}

	raw := []byte(text)

	for _, secret := range hidden {
		if len(secret) >= minHidden {
			raw = bytes.ReplaceAll(raw, secret, []byte("..."))
		}
	}

	text = strings.Join(strings.Fields(strings.ToValidUTF8(string(raw), "")), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}

	return text
}

// withoutValue removes the part of a validation message that quotes the value of
// the field.
func withoutValue(text string) string {
	if before, _, quotes := strings.Cut(text, "Value '"); quotes {
		if at := strings.LastIndex(text, "' at '"); at >= 0 {
			return before + "the value" + text[at+1:]
		}

		return before + "the value ..."
	}

	return text
}

// status is HTTP's, 0 where there was no answer.
func status(err error) int {
	response, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || response.Response == nil {
		return 0
	}

	return response.HTTPStatusCode()
}

// reference returns the id of the request, with which it can be found in AWS's
// audit log.
func reference(err error) string {
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.ServiceRequestID() == "" {
		return ""
	}

	const maxID = 64

	id := response.ServiceRequestID()

	return ", request id " + id[:min(len(id), maxID)]
}

// retryAfter returns the time after which AWS may be called again.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}

	return time.Duration(seconds) * time.Second
}
