package kit

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// errorTests look at what all other tests have seen, so they come last.
func errorTests() []Test {
	return []Test{
		{ID: "errors.codes-are-canonical", Why: "The operator handles an error by its code.", Run: codesAreCanonical},
		{ID: "errors.have-info", Why: "An error without ErrorInfo is treated as a transport error and is no evidence about the secret.", Run: errorsHaveInfo},
		{ID: "errors.of-reads-have-a-reason", Why: "Programs evaluate the reason, users read the message.", Run: itemsHaveAReason},
		{ID: "errors.hold-no-value", Why: "Errors appear in conditions, events and logs, which many users can read.", Run: noValueInErrors},
		{ID: "errors.output-holds-no-value", Why: "Logs are often stored outside the cluster and kept for a long time.", Needs: Needs{Command: true}, Run: noValueInOutput},
		{ID: "wire.answers-keep-the-limit", Why: "The operator cannot receive a larger message: the sync fails without naming the secret.", Run: answersKeepTheLimit},
	}
}

func codesAreCanonical(_ context.Context, t *T) {
	seen := false

	for _, failure := range t.run.record.own() {
		seen = true

		if code := status.Code(failure.err); !canonical(code) {
			t.Errorf("%s failed with code %d, which is not one of google.rpc.Code", failure.method, code)
		}
	}

	for _, item := range t.run.record.failedItems() {
		seen = true

		if code := item.err.GetCode(); code <= 0 || code > int32(codes.Unauthenticated) {
			t.Errorf("a read failed with code %d, which is not one of google.rpc.Code", code)
		}
	}

	if !seen {
		t.NotExercised("no test that ran has seen an error")
	}
}

// reasonForm is that of a reason.
func reasonForm() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`) }

func errorsHaveInfo(_ context.Context, t *T) {
	failures := t.run.record.own()
	if len(failures) == 0 {
		t.NotExercised("no test that ran has seen a call that failed")
	}

	var told []string

	for _, failure := range failures {
		for _, text := range wrongInfo(failure) {
			if !slices.Contains(told, text) {
				told = append(told, text)
				t.Errorf("%s", text)
			}
		}
	}
}

// wrongInfo is what is wrong with an error's details.
func wrongInfo(failure seenFailure) []string {
	what := failure.method + ", failing with " + name(status.Code(failure.err))

	info := infoOf(failure.err)
	if info == nil {
		return []string{what + ": it has no google.rpc.ErrorInfo with domain " + pb.ErrorDomain}
	}

	var wrong []string

	if !reasonForm().MatchString(info.GetReason()) {
		wrong = append(wrong, what+": the reason is not in UPPER_SNAKE_CASE")
	}

	if scope := info.GetMetadata()[pb.MetadataScope]; scope != pb.ScopeStore && scope != pb.ScopeItem {
		wrong = append(wrong, what+": the scope is neither store nor item")
	}

	if status.Convert(failure.err).Message() == "" {
		wrong = append(wrong, what+": it has no message")
	}

	for _, detail := range status.Convert(failure.err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && (!retry.GetRetryDelay().IsValid() || retry.GetRetryDelay().AsDuration() < 0) {
			wrong = append(wrong, what+": the retry delay is no time")
		}
	}

	return wrong
}

func itemsHaveAReason(_ context.Context, t *T) {
	items := t.run.record.failedItems()
	if len(items) == 0 {
		t.NotExercised("no test that ran has seen a read that failed")
	}

	for _, item := range items {
		if !reasonForm().MatchString(item.err.GetReason()) {
			t.Fatalf("a read failed with %s: the reason is not in UPPER_SNAKE_CASE", name(codes.Code(item.err.GetCode()))) //nolint:gosec // shown only
		}

		if text := item.err.GetMessage(); strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
			t.Fatalf("a read failed with %s: it has no message", name(codes.Code(item.err.GetCode()))) //nolint:gosec // shown only
		}
	}
}

func noValueInErrors(_ context.Context, t *T) {
	places, looked := t.run.record.leaks()
	if !looked {
		t.NotExercised("there was no error, or no value of %d bytes or more to look for; give fixtures.secrets", minCanary)
	}

	for _, place := range places {
		t.Errorf("%s contains a value or a credential", place)
	}
}

func noValueInOutput(_ context.Context, t *T) {
	if t.run.record.holds(t.run.process.output.String()) {
		t.Errorf("the provider's output contains a value or a credential")
	}
}

func answersKeepTheLimit(_ context.Context, t *T) {
	limit := t.run.info.GetLimits().GetMaxMessageBytes()
	if limit == 0 {
		t.Skip("the provider names no limit")
	}

	r := t.run.record
	r.mu.Lock()
	defer r.mu.Unlock()

	if uint64(r.largest) > limit { //nolint:gosec // a length
		t.Errorf("an answer to %s has %d bytes, more than limits.max_message_bytes, which is %d", r.largestAt, r.largest, limit)
	}
}
