package kit

import (
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// minCanary is how long a value must be to be searched for.
const minCanary = 6

// record has the errors of a run, and the values that must not be in
// them.
type record struct {
	mu       sync.Mutex
	canaries map[string]bool
	// texts are what providers write for people and machines besides answers.
	texts []seenText
	// failures are calls that failed.
	failures []seenFailure
	// items are reads of a batch that failed.
	items []seenItem
	// largest answer, and where.
	largest   int
	largestAt string
}

type seenText struct{ where, text string }

type seenFailure struct {
	method string
	err    error
}

type seenItem struct {
	method string
	err    *pb.Error
}

func newRecord(canaries []string) *record {
	r := &record{canaries: map[string]bool{}}
	r.guard(canaries...)

	return r
}

// guard adds values that must not be in errors.
func (r *record) guard(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, value := range values {
		if len(value) >= minCanary {
			r.canaries[value] = true
			r.canaries[base64.StdEncoding.EncodeToString([]byte(value))] = true
		}
	}
}

// forget what was seen so far.
func (r *record) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.texts, r.failures, r.items = nil, nil, nil
}

// veil takes values out of a text.
func (r *record) veil(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()

	for canary := range r.canaries {
		text = strings.ReplaceAll(text, canary, hidden)
	}

	return text
}

// note keeps a text that a provider wrote.
func (r *record) note(where, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.texts = append(r.texts, seenText{where, text})
}

// leaks are the places that hold a value, and whether there was any value and
// any text to look for.
func (r *record) leaks() (places []string, looked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, seen := range r.texts {
		for canary := range r.canaries {
			if strings.Contains(seen.text, canary) && !slices.Contains(places, seen.where) {
				places = append(places, seen.where)
			}
		}
	}

	return places, len(r.canaries) > 0 && len(r.texts) > 0
}

// holds reports whether a text holds a value.
func (r *record) holds(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	for canary := range r.canaries {
		if strings.Contains(text, canary) {
			return true
		}
	}

	return false
}

// ofTransport marks calls that gRPC itself may refuse.
type ofTransport struct{}

// exempt makes the failures of calls not count as the provider's own words.
func exempt(ctx context.Context) context.Context {
	return context.WithValue(ctx, ofTransport{}, true)
}

func (r *record) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	var header, trailer metadata.MD

	err := invoke(ctx, method, request, reply, conn, append(options, grpc.Header(&header), grpc.Trailer(&trailer))...)

	r.see(ctx, path.Base(method), reply, err, header, trailer)

	return err
}

func (r *record) stream(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, conn, method, options...)
	if err != nil {
		r.see(ctx, path.Base(method), nil, err, nil, nil)

		return nil, err
	}

	return &seenStream{ClientStream: stream, record: r, method: path.Base(method)}, nil
}

// seenStream records what comes.
type seenStream struct {
	grpc.ClientStream

	record *record
	method string
}

// RecvMsg receives a message.
func (s *seenStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil {
		s.record.see(s.Context(), s.method, message, nil, nil, nil)
	} else if _, ok := status.FromError(err); ok {
		s.record.see(s.Context(), s.method, nil, err, nil, s.Trailer())
	}

	return err
}

// see records an answer or a failure.
func (r *record) see(ctx context.Context, method string, reply any, err error, header, trailer metadata.MD) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, md := range []metadata.MD{header, trailer} {
		for name, values := range md {
			if name == "content-type" {
				continue // gRPC's own.
			}

			r.texts = append(r.texts, seenText{fmt.Sprintf("metadata %q of %s", name, method), strings.Join(values, " ")})
		}
	}

	if err != nil {
		// Details are part of it, whatever their type.
		s := status.Convert(err)
		r.texts = append(r.texts, seenText{"the error of " + method, s.Message()})

		for _, detail := range s.Proto().GetDetails() {
			r.texts = append(r.texts, seenText{"a detail of the error of " + method, string(detail.GetValue())})
		}

		if ctx.Value(ofTransport{}) == nil {
			r.failures = append(r.failures, seenFailure{method, err})
		}

		return
	}

	message, ok := reply.(proto.Message)
	if !ok {
		return
	}

	if size := proto.Size(message); size > r.largest {
		r.largest, r.largestAt = size, method
	}

	r.read(method, message)
}

// read keeps the texts of an answer that are not values.
func (r *record) read(method string, message proto.Message) {
	switch answer := message.(type) {
	case *pb.GetSecretsResponse:
		for _, result := range answer.GetResults() {
			if failure := result.GetError(); failure != nil {
				r.items = append(r.items, seenItem{method, failure})
				r.texts = append(r.texts, seenText{"the error of a read", failure.GetMessage() + " " + failure.GetReason()})
			}

			r.texts = append(r.texts, seenText{"a revision", result.GetRevision()})
		}
	case *pb.ValidateResponse:
		r.texts = append(r.texts, seenText{"the answer of Validate", answer.GetMessage() + " " + strings.Join(answer.GetWarnings(), " ")})
	case *pb.GetStatusResponse:
		r.texts = append(r.texts, seenText{"the answer of GetStatus", answer.GetReason()})
	}
}

// own are the failures that are a provider's own words, and not its
// transport's.
func (r *record) own() []seenFailure {
	r.mu.Lock()
	defer r.mu.Unlock()

	var own []seenFailure

	for _, failure := range r.failures {
		if !slices.Contains(transportCodes(), status.Code(failure.err)) {
			own = append(own, failure)
		}
	}

	return own
}

// failedItems are the reads that failed.
func (r *record) failedItems() []seenItem {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Clone(r.items)
}

// canonical reports whether a code is one of google.rpc.Code, and no success.
func canonical(code codes.Code) bool { return code > codes.OK && code <= codes.Unauthenticated }
