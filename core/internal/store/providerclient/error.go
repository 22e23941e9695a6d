package providerclient

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/store"
)

// maxMessage bounds an error message of a provider: it ends in a condition.
const maxMessage = 512

// FromStatus converts the gRPC status of a failure in this process to an Error, as
// if a provider had returned it.
func FromStatus(err error) *store.Error { return callError(Endpoint{}, "", err) }

// callError converts the failure of a call to an Error.
func callError(endpoint Endpoint, requestID string, err error) *store.Error {
	if already, ok := errors.AsType[*store.Error](err); ok {
		return already
	}

	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = status.FromContextError(err).Err()
	}

	s, ok := status.FromError(err)
	if !ok {
		return &store.Error{Code: codes.Unavailable, Message: clean(fmt.Sprintf("cannot call the provider at %s: %v", endpoint.Address, err)), RequestID: requestID}
	}

	e := &store.Error{Code: s.Code(), Message: clean(s.Message()), RequestID: requestID}

	typed := false

	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == pb.ErrorDomain {
				e.Reason = clean(detail.GetReason())
				e.Item = detail.GetMetadata()[pb.MetadataScope] == pb.ScopeItem
				typed = true
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = bounded(detail.GetRetryDelay().AsDuration())
		}
	}

	if !typed {
		// The failure is of the transport, or of a provider that breaks the
		// protocol: that nothing was found is not proven by it.
		e.Item = false
		describe(e, endpoint)
	}

	return e
}

// describe says of a transport's failure what it means.
func describe(e *store.Error, endpoint Endpoint) {
	text := cause(e.Message)

	own, ownFault := strings.CutPrefix(text, "authentication handshake failed: ")

	switch {
	case e.Code == codes.Unavailable && ownFault && strings.HasPrefix(own, "cannot "):
		// The operator itself has nothing to show, or nothing to compare with.
		e.Untrusted = true
		e.Message = fmt.Sprintf("the connection to the provider at %s cannot be secured: %s", endpoint.Address, own)
	case e.Code == codes.Unavailable && untrusted(text):
		e.Untrusted = true
		e.Message = fmt.Sprintf("the provider at %s and the operator do not trust each other: %s", endpoint.Address, text)
	case e.Code == codes.Unavailable:
		e.Message = fmt.Sprintf("the provider at %s does not answer: %s", endpoint.Address, text)
		if hungUp(text) {
			e.Message += "; it may refuse the operator's certificate: its log says"
		}
	case e.Code == codes.ResourceExhausted && strings.Contains(text, "larger than max"):
		e.Reason = pb.ReasonTooLarge
		e.Message = fmt.Sprintf("the answer of the provider at %s is over the limit of %d bytes: %s", endpoint.Address, maxAnswerBytes, text)
	case e.Code == codes.DeadlineExceeded:
		e.Message = fmt.Sprintf("the provider at %s did not answer in time", endpoint.Address)
	case e.Code == codes.Unimplemented:
		e.Message = fmt.Sprintf("the provider at %s does not serve protocol %s: %s", endpoint.Address, pb.ProtocolVersion, text)
	default:
		e.Message = fmt.Sprintf("the provider at %s failed: %s", endpoint.Address, text)
	}
}

// cause unwraps what gRPC says about a connection: the reason comes last, in
// quotes, behind the layers that have passed it on.
func cause(text string) string {
	if at := strings.LastIndex(text, "desc = "); at >= 0 {
		text = text[at+len("desc = "):]
	}

	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}

	return strings.TrimPrefix(text, "transport: ")
}

// hungUp recognises a provider that closed the connection. In TLS 1.3 it
// refuses a client's certificate so, and its reason may be lost on the way.
func hungUp(text string) bool {
	for _, mark := range []string{"broken pipe", "connection reset", "error reading server preface"} {
		if strings.Contains(text, mark) {
			return true
		}
	}

	return false
}

// untrusted recognises a failed handshake: gRPC reports one like any other
// broken connection.
func untrusted(text string) bool {
	for _, mark := range []string{"authentication handshake failed", "tls:", "x509:"} {
		if strings.Contains(text, mark) {
			return true
		}
	}

	return false
}

// itemError converts the error of one read to an Error.
func itemError(requestID string, wire *pb.Error) *store.Error {
	code := codes.Code(wire.GetCode()) //nolint:gosec // checked below
	if wire.GetCode() <= 0 || wire.GetCode() > int32(codes.Unauthenticated) {
		return breach(requestID, "an error with code %d", wire.GetCode())
	}

	return &store.Error{
		Code: code, Reason: clean(wire.GetReason()), Message: clean(wire.GetMessage()), Item: true,
		RetryAfter: bounded(wire.GetRetryAfter().AsDuration()), RequestID: requestID,
	}
}

// breach is an answer that breaks the protocol.
func breach(requestID, format string, args ...any) *store.Error {
	return &store.Error{
		Code: codes.Internal, Reason: "INVALID_ANSWER", RequestID: requestID, Breach: true,
		Message: "the provider breaks the protocol: it answered " + fmt.Sprintf(format, args...),
	}
}

// clean converts a provider's text for a condition: valid, on one line, and
// bounded.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return ' '
		}

		return r
	}, text)

	if len(text) > maxMessage {
		cut := maxMessage
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}

		text = text[:cut] + "..."
	}

	return text
}

// bounded keeps a provider from putting its callers off for ever.
func bounded(d time.Duration) time.Duration {
	return min(max(d, 0), time.Hour)
}
