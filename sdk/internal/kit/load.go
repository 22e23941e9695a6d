package kit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

const (
	// shortDeadline is one that a slow call cannot keep.
	shortDeadline = 300 * time.Millisecond
	// lateness is how much later than its deadline a call may end.
	lateness = time.Second
	// callers and rounds of the test of concurrency.
	callers = 16
	rounds  = 8
)

// wireTests are those of messages.
func wireTests() []Test {
	return []Test{
		{ID: "wire.unknown-fields-are-ignored", Why: "A newer operator sends fields that this provider does not know.", Needs: reads(FixtureValue), Run: unknownFields},
		{ID: "wire.large-request-is-refused", Why: "A large request must not exhaust the provider's memory or stop it.", Run: largeRequest},
	}
}

// unknown adds a field that no version of the protocol has.
func unknown(message proto.Message) { padded(message, 16) }

// padded adds such a field of some size.
func padded(message proto.Message, size int) {
	field := protowire.AppendTag(nil, 536870000, protowire.BytesType)
	message.ProtoReflect().SetUnknown(protowire.AppendString(field, strings.Repeat("x", size)))
}

func unknownFields(ctx context.Context, t *T) {
	about := &pb.GetInfoRequest{}
	unknown(about)

	_, err := pb.NewProviderInfoClient(t.run.conn).GetInfo(ctx, about)
	t.must("GetInfo with a field of a newer version", err)

	secret := t.target().values()[0]
	whole, _ := secret.whole()
	read := valueOf("0", secret.Key)
	request := &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{read}}

	for _, message := range []proto.Message{read, request, request.GetContext(), request.GetContext().GetStore(), request.GetContext().GetConfig()} {
		unknown(message)
	}

	response, err := t.store().GetSecrets(ctx, request)
	t.must("GetSecrets with fields of a newer version", err)

	for _, result := range response.GetResults() {
		t.holds("a read with fields of a newer version", result, whole)
	}
}

func largeRequest(ctx context.Context, t *T) {
	limit := t.run.info.GetLimits().GetMaxMessageBytes()
	if limit == 0 || limit >= maxAnswer {
		t.Skip("the provider names no limit, or one that is not below %d bytes", maxAnswer)
	}

	about := &pb.GetInfoRequest{}
	padded(about, int(limit))

	// gRPC itself may refuse it with another code.
	_, err := pb.NewProviderInfoClient(t.run.conn).GetInfo(exempt(ctx), about)
	t.refused(fmt.Sprintf("a request of more than limits.max_message_bytes, which is %d", limit), err, codes.ResourceExhausted, codes.InvalidArgument, codes.OutOfRange)

	_, err = pb.NewProviderInfoClient(t.run.conn).GetInfo(ctx, &pb.GetInfoRequest{})
	t.must("GetInfo after a request that was too large", err)
}

// loadTests are those of time and of many calls.
func loadTests() []Test {
	slow := reads(FixtureSlow)

	return []Test{
		{ID: "concurrency.parallel-batches", Why: "The operator sends many calls concurrently: none may receive another call's answer.", Needs: reads(FixtureValue), Run: parallelBatches},
		{ID: "deadline.slow-call-ends", Why: "A call after its deadline must not keep a connection, a login and memory.", Needs: slow, Run: slowCallEnds},
		{ID: "cancel.provider-serves-on", Why: "Callers may cancel a call at any time.", Needs: slow, Run: cancelled},
	}
}

func parallelBatches(ctx context.Context, t *T) {
	type mistake struct{ text string }

	var (
		wait     sync.WaitGroup
		mu       sync.Mutex
		mistakes = map[mistake]int{}
	)

	secrets := t.target().values()

	for caller := range callers {
		// Contexts are created here: T is for one goroutine.
		var calls []*pb.CallContext
		for range rounds {
			calls = append(calls, t.call())
		}

		wait.Go(func() {
			for round, call := range calls {
				secret := secrets[(caller+round)%len(secrets)]
				id := fmt.Sprintf("%d-%d", caller, round)
				text := ""

				response, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: call, Reads: []*pb.SecretRead{valueOf(id, secret.Key)}})
				whole, _ := secret.whole()

				switch {
				case err != nil:
					text = "a read failed with " + described(err)
				case len(response.GetResults()) != 1 || response.GetResults()[0].GetId() != id:
					text = "a read was answered with another id, or not once"
				case string(response.GetResults()[0].GetValue()) != string(whole):
					text = fmt.Sprintf("secret %q has another value than alone", secret.Key)
				}

				if text != "" {
					mu.Lock()
					mistakes[mistake{text}]++
					mu.Unlock()
				}
			}
		})
	}

	wait.Wait()

	for mistake, times := range mistakes {
		t.Errorf("%d callers at a time: %s, %d times of %d", callers, mistake.text, times, callers*rounds)
	}
}

// slowly is a read that takes its time.
func (t *T) slowly() *pb.GetSecretsRequest {
	slow := t.target().Fixtures.Slow

	return &pb.GetSecretsRequest{
		Context: t.with(func(c *pb.CallContext) { c.Config = slow.Config.wire() }),
		Reads:   []*pb.SecretRead{valueOf("0", slow.Key)},
	}
}

// slowCallEnds makes a call whose deadline only the provider knows: gRPC's own
// clients would end it in the provider's place.
func slowCallEnds(ctx context.Context, t *T) {
	began := time.Now()
	got, err := t.run.bare(ctx, "/externalsecrets.provider.v2alpha1.SecretStore/GetSecrets", t.slowly(), shortDeadline, shortDeadline+lateness)
	took := time.Since(began)

	switch {
	case err != nil:
		t.Errorf("a call with a deadline of %s: it has not ended after %s", shortDeadline, took.Round(time.Millisecond))
	case got == codes.OK && took < shortDeadline:
		t.NotExercised("a read with fixtures.slow.config took %s; it should take two to ten seconds", took.Round(time.Millisecond))
	case got != codes.DeadlineExceeded && got != codes.Canceled:
		t.Errorf("a call with a deadline of %s: it ended with %s, and should with DEADLINE_EXCEEDED", shortDeadline, name(got))
	}
}

func cancelled(ctx context.Context, t *T) {
	for range 20 {
		request := t.slowly()
		going, cancel := context.WithTimeout(ctx, 20*time.Millisecond)

		_, err := t.store().GetSecrets(going, request)
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Canceled {
			cancel()
			t.NotExercised("a read with fixtures.slow.config ended with %s before it could be cancelled; it should take two to ten seconds", name(code))
		}

		cancel()
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{valueOf("0", t.target().Fixtures.Slow.Key)}})
	t.must("a read after twenty that were cancelled", err)
}
