package server

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// protocolPrefix begins the methods of the protocol's services.
const protocolPrefix = "/externalsecrets.provider."

// observer counts and logs every call, and recovers from panics. It must never
// log a key or a value of a request.
type observer struct {
	metrics *metrics
	log     *slog.Logger
}

// contextual is a request with a call context.
type contextual interface{ GetContext() *pb.CallContext }

func (o *observer) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	began := time.Now()

	defer func() {
		if panicked := recover(); panicked != nil {
			response, err = nil, o.panicked(info.FullMethod, panicked)
		}

		o.done(ctx, request, response, info.FullMethod, time.Since(began), err)
	}()

	return handler(ctx, request)
}

// stream is unary for streams.
func (o *observer) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	// Streams of other services, such as a watch of the health, last until their
	// caller cancels them.
	if !strings.HasPrefix(info.FullMethod, protocolPrefix) {
		return handler(server, stream)
	}

	began, recorded := time.Now(), &recordedStream{ServerStream: stream}

	defer func() {
		if panicked := recover(); panicked != nil {
			err = o.panicked(info.FullMethod, panicked)
		}

		o.done(stream.Context(), recorded.request, nil, info.FullMethod, time.Since(began), err)
	}()

	return handler(server, recorded)
}

// recordedStream records the request.
type recordedStream struct {
	grpc.ServerStream

	request any
}

// RecvMsg reads the request.
func (r *recordedStream) RecvMsg(message any) error {
	err := r.ServerStream.RecvMsg(message)
	r.request = message

	return err
}

// panicked logs the type and place of a panic, whose text may hold a secret value,
// and returns the error for the caller.
func (o *observer) panicked(method string, panicked any) error {
	o.log.Error("panic", "method", method, "type", fmt.Sprintf("%T", panicked), "stack", string(debug.Stack()))

	return &provider.Error{Code: codes.Internal, Reason: pb.ReasonInternal, Message: "the provider has a defect: it panicked; its log names the place"}
}

func (o *observer) done(ctx context.Context, request, response any, method string, took time.Duration, err error) {
	code := status.Code(err)

	var reads []codes.Code
	if answered, ok := response.(*pb.GetSecretsResponse); ok && err == nil {
		reads = outcomes(answered)
	}

	o.metrics.call(path.Base(method), code, took, reads...)

	level := slog.LevelDebug
	if code != codes.OK {
		level = slog.LevelInfo
	}

	if !o.log.Enabled(ctx, level) {
		return
	}

	fields := []any{"method", method, "code", code.String(), "seconds", took.Seconds()}

	if r, ok := request.(contextual); ok {
		c := r.GetContext()
		fields = append(fields,
			"requestID", c.GetRequestId(),
			"store", c.GetStore().GetKind()+"/"+c.GetStore().GetNamespace()+"/"+c.GetStore().GetName(),
			"config", c.GetConfig().GetKind()+"/"+c.GetConfig().GetNamespace()+"/"+c.GetConfig().GetName(),
			"sourceNamespace", c.GetSourceNamespace())
	}

	if reads != nil {
		fields = append(fields, "reads", len(reads), "failedReads", failures(reads))
	}

	if err != nil {
		fields = append(fields, "error", err.Error())
	}

	o.log.Log(ctx, level, "call", fields...)
}

// outcomes returns the codes of the reads of a batch.
func outcomes(response *pb.GetSecretsResponse) []codes.Code {
	reads := make([]codes.Code, 0, len(response.GetResults()))
	for _, result := range response.GetResults() {
		reads = append(reads, codes.Code(result.GetError().GetCode())) //nolint:gosec // codes are below 17
	}

	return reads
}

func failures(reads []codes.Code) int {
	failed := 0

	for _, code := range reads {
		if code != codes.OK {
			failed++
		}
	}

	return failed
}
