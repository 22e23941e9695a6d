package server

import (
	"context"
	"fmt"
	"regexp"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// findBytes and findEntries bound one message of the stream.
	findBytes   = 256 << 10
	findEntries = 500
	// maxRegexp bounds an expression, in bytes.
	maxRegexp = 4096
)

// FindSecrets streams the secrets that a store finds. Where the backend refuses
// the store's login before anything was found, it searches once more with a new
// store.
func (s *storeService) FindSecrets(request *pb.FindSecretsRequest, stream grpc.ServerStreamingServer[pb.FindSecretsResponse]) error {
	if err := checkUse(request.GetContext(), storeKinds()); err != nil {
		return err
	}

	query, err := queryOf(request)
	if err != nil {
		return err
	}

	out := &findStream{stream: stream, limit: int(request.GetMaxResults()), seen: map[string]bool{}}

	fresh, err := s.find(stream.Context(), request.GetContext(), query, out)
	if isRefusal(err) && !fresh && len(out.seen) == 0 {
		_, err = s.find(stream.Context(), request.GetContext(), query, out)
	}

	if err != nil {
		return findError(err)
	}

	return out.flush()
}

// findError returns the error of a search. A secret that was deleted during the
// search does not prove that nothing matches: an empty answer would.
func findError(err error) error {
	typed := provider.AsError(err)
	if typed.Code != codes.NotFound {
		return typed
	}

	lost := *typed
	lost.Code, lost.Reason = codes.Unavailable, pb.ReasonUnavailable

	return &lost
}

func (s *storeService) find(ctx context.Context, call *pb.CallContext, query provider.Query, out *findStream) (fresh bool, err error) {
	acquired, err := s.sessions.Acquire(ctx, call)
	if err != nil {
		return false, err
	}
	defer acquired.Release()

	finder, ok := acquired.Instance.(provider.Finder)
	if !ok {
		return false, provider.Unsupported("%s does not find secrets", call.GetConfig().GetKind())
	}

	err = finder.Find(ctx, query, out.add)
	if isRefusal(err) {
		acquired.Discard()
	}

	return acquired.Fresh, err
}

func queryOf(request *pb.FindSecretsRequest) (provider.Query, error) {
	query := provider.Query{Path: request.Path, Tags: request.GetTags()}

	expression := request.GetNameRegexp()

	switch {
	case expression == "":
		return query, nil
	case len(expression) > maxRegexp:
		return query, provider.InvalidRequest("name_regexp has %d bytes, more than %d", len(expression), maxRegexp)
	}

	var err error
	if query.Name, err = regexp.Compile(expression); err != nil {
		return query, provider.InvalidRequest("name_regexp: %v", err)
	}

	return query, nil
}

// findStream collects secrets into messages.
type findStream struct {
	stream grpc.ServerStreamingServer[pb.FindSecretsResponse]
	limit  int
	seen   map[string]bool

	pending *pb.FindSecretsResponse
	size    int
}

// add adds one secret.
func (f *findStream) add(found provider.Found) error {
	size := len(found.Key) + len(found.Value)

	switch {
	case f.limit > 0 && len(f.seen) == f.limit:
		return tooLarge("more than %d secrets match: narrow find by path, name or tags", f.limit)
	case size > maxMessageBytes-findBytes:
		return tooLarge("the secret %q has %d bytes: a message holds %d", found.Key, size, maxMessageBytes-findBytes)
	case found.Key == "" || f.seen[found.Key]:
		return &provider.Error{Code: codes.Internal, Reason: pb.ReasonInternal, Message: fmt.Sprintf("the provider has a defect: it found %q twice, or without a name", found.Key)}
	case !utf8.ValidString(found.Key):
		return provider.InvalidRequest("a secret has a key that is not UTF-8: %q", found.Key)
	}

	if f.pending != nil && (f.size+size > findBytes || len(f.pending.GetEntries()) == findEntries) {
		if err := f.flush(); err != nil {
			return err
		}
	}

	if f.pending == nil {
		f.pending = &pb.FindSecretsResponse{}
	}

	f.seen[found.Key] = true
	f.size += size
	f.pending.Entries = append(f.pending.Entries, &pb.SecretEntry{Key: found.Key, Value: found.Value})

	return nil
}

// flush sends the pending message.
func (f *findStream) flush() error {
	if f.pending == nil {
		return nil
	}

	message := f.pending
	f.pending, f.size = nil, 0

	return f.stream.Send(message)
}

func tooLarge(format string, args ...any) error {
	return &provider.Error{Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge, Message: fmt.Sprintf(format, args...)}
}
