package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Test checks one requirement of the protocol.
type Test struct {
	// ID is stable, and the same in every report: an area, a dot and a name.
	ID string
	// Why is a sentence with the reason for it.
	Why string
	// Needs is when it applies.
	Needs Needs
	// Run asserts. It may be called when Needs are met.
	Run func(ctx context.Context, t *T)
}

// Area is the first part of the id.
func (t Test) Area() string {
	area, _, _ := strings.Cut(t.ID, ".")

	return area
}

// Needs of a test.
type Needs struct {
	// Capabilities that the kind claims; without them the test does not apply.
	Capabilities []pb.Capability
	// Absent is a capability that the target says its store lacks; without that
	// the test does not apply. Unspecified means none.
	Absent pb.Capability
	// Store says that it calls what every kind of store serves: the kind is no
	// generator's.
	Store bool
	// Writes means that it changes the backend: profile full.
	Writes bool
	// Fixtures that must be given; without them the test is not exercised.
	Fixtures []Fixture
	// TLS means that it tests the transport of network addresses.
	TLS bool
	// Authority means that the kit must be able to issue certificates.
	Authority bool
	// Command means that the kit must have started the provider.
	Command bool
}

// Fixture is the name of a field of a target.
type Fixture string

// Fixtures that tests need.
const (
	FixtureValue           Fixture = "fixtures.secrets[].value"
	FixtureBinary          Fixture = "fixtures.secrets[].binary"
	FixtureProperties      Fixture = "fixtures.secrets[].properties"
	FixtureMissingProperty Fixture = "fixtures.secrets[].missingProperty"
	FixtureMap             Fixture = "fixtures.secrets[].map"
	FixtureVersions        Fixture = "fixtures.secrets[].versions"
	FixtureMissingVersion  Fixture = "fixtures.secrets[].missingVersion"
	FixtureMetadata        Fixture = "fixtures.secrets[].metadata"
	FixtureTwoSecrets      Fixture = "fixtures.secrets (two with a value)"
	FixtureMissingKey      Fixture = "fixtures.missingKey"
	FixtureFind            Fixture = "fixtures.find"
	FixtureFindTwo         Fixture = "fixtures.find (one that finds two keys)"
	FixtureWrite           Fixture = "fixtures.write.prefix"
	FixtureUnowned         Fixture = "fixtures.write.unowned"
	FixtureInvalidConfig   Fixture = "fixtures.invalidConfig"
	FixtureSlow            Fixture = "fixtures.slow"
	FixtureGenerator       Fixture = "fixtures.generator"
)

// given reports whether a target has the fixture.
func (f Fixture) given(t *Target) bool {
	some := func(has func(Secret) bool) bool { return slices.ContainsFunc(t.Fixtures.Secrets, has) }

	switch f {
	case FixtureValue:
		return len(t.values()) > 0
	case FixtureTwoSecrets:
		return len(t.values()) > 1
	case FixtureBinary:
		return some(isBinary)
	case FixtureProperties:
		return some(func(s Secret) bool { return len(s.Properties) > 0 })
	case FixtureMissingProperty:
		return some(func(s Secret) bool { return s.MissingProperty != "" })
	case FixtureMap:
		return some(func(s Secret) bool { return s.Map != nil })
	case FixtureVersions:
		return some(func(s Secret) bool { return len(s.Versions) > 0 })
	case FixtureMissingVersion:
		return some(func(s Secret) bool { return s.MissingVersion != "" })
	case FixtureMetadata:
		return some(func(s Secret) bool { return len(s.Metadata) > 0 })
	case FixtureMissingKey:
		return t.Fixtures.MissingKey != ""
	case FixtureFind:
		return len(t.Fixtures.Find) > 0
	case FixtureFindTwo:
		return slices.ContainsFunc(t.Fixtures.Find, func(s Search) bool { return len(s.Keys) > 1 })
	case FixtureWrite:
		return t.Fixtures.Write != nil
	case FixtureUnowned:
		return t.Fixtures.Write != nil && t.Fixtures.Write.Unowned != ""
	case FixtureInvalidConfig:
		return t.Fixtures.InvalidConfig != nil
	case FixtureSlow:
		return t.Fixtures.Slow != nil
	case FixtureGenerator:
		return t.Fixtures.Generator != nil
	default:
		return false
	}
}

// values are the secrets whose whole value is known, and a text: that bytes
// survive is for one test, and not for all.
func (t *Target) values() []Secret {
	var known []Secret

	for _, secret := range t.Fixtures.Secrets {
		if _, ok := secret.whole(); ok && !isBinary(secret) {
			known = append(known, secret)
		}
	}

	return known
}

// T is a test that runs. Its methods are for one goroutine.
type T struct {
	run  *run
	test Test

	failures   []string
	requestIDs []string
}

// Outcomes other than failure end a test at once.
type (
	failed       struct{}
	notExercised struct{ reason string }
	skipped      struct{ reason string }
)

// Errorf records a failure. The text describes what failed and where, and
// contains no value.
func (t *T) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Fatalf records a failure and ends the test.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(failed{})
}

// NotExercised ends the test without a result.
func (t *T) NotExercised(format string, args ...any) {
	panic(notExercised{fmt.Sprintf(format, args...)})
}

// Skip ends the test: it does not apply.
func (t *T) Skip(format string, args ...any) { panic(skipped{fmt.Sprintf(format, args...)}) }

// target of the run.
func (t *T) target() *Target { return &t.run.target }

// claims reports whether the kind under test claims a capability.
func (t *T) claims(capability pb.Capability) bool { return t.run.claimed(capability) }

// call is a context for one call, with an id of its own.
func (t *T) call() *pb.CallContext {
	call, _ := proto.Clone(t.run.call).(*pb.CallContext)
	call.RequestId = t.run.requestID()
	t.requestIDs = append(t.requestIDs, call.GetRequestId())

	return call
}

// with is a context for one call, changed.
func (t *T) with(change func(*pb.CallContext)) *pb.CallContext {
	call := t.call()
	change(call)

	return call
}

// store is the endpoint's SecretStore.
func (t *T) store() pb.SecretStoreClient { return pb.NewSecretStoreClient(t.run.conn) }

// refused checks that a call failed with one of the codes.
func (t *T) refused(what string, err error, want ...codes.Code) {
	if err == nil {
		t.Errorf("%s: it was answered, and should fail with %s", what, listed(want))

		return
	}

	if got := status.Code(err); !slices.Contains(want, got) {
		t.Errorf("%s: it failed with %s, and should with %s", what, name(got), listed(want))
	}
}

// because checks the reason that goes with a refusal. That there is one is for
// another test.
func (t *T) because(what string, err error, want string) {
	if info := infoOf(err); info != nil && info.GetReason() != want {
		t.Errorf("%s: the reason is %q, and should be %q", what, info.GetReason(), want)
	}
}

// must ends the test unless a call was answered.
func (t *T) must(what string, err error) {
	if err != nil {
		t.Fatalf("%s: it failed with %s", what, described(err))
	}
}

func listed(want []codes.Code) string {
	names := make([]string, 0, len(want))
	for _, code := range want {
		names = append(names, name(code))
	}

	return strings.Join(names, " or ")
}

// name of a code as in google.rpc.Code.
func name(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}

	return strings.ToUpper(snake(code.String()))
}

// snake puts underscores between the words of a name.
func snake(text string) string {
	var b strings.Builder

	for i, r := range text {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}

		b.WriteRune(r)
	}

	return b.String()
}

// described returns a provider's error without its text, which may contain a
// value.
func described(err error) string {
	text := name(status.Code(err))
	if info := infoOf(err); info != nil {
		text += " (" + info.GetReason() + ")"
	}

	return text
}

// infoOf is the protocol's detail of an error, nil where there is none.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == pb.ErrorDomain {
			return info
		}
	}

	return nil
}

// perform runs a test and returns its outcome.
func (t *T) perform(ctx context.Context) (result Outcome, message string) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failed:
		case notExercised:
			if len(t.failures) == 0 {
				result, message = NotExercised, ended.reason

				return
			}
		case skipped:
			if len(t.failures) == 0 {
				result, message = Skipped, ended.reason

				return
			}
		default:
			panic(ended)
		}

		if len(t.failures) > 0 {
			result, message = Fail, strings.Join(t.failures, "; ")
		}
	}()

	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()

	t.test.Run(ctx, t)

	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it took longer than %s", testTimeout)
	}

	return Pass, ""
}

// Tests of this version of the kit, in the order in which they run.
func Tests() []Test {
	return slices.Concat(
		identityTests(), claimTests(), healthTests(), contextTests(), validateTests(), readTests(), batchTests(), revisionTests(),
		findTests(), writeTests(), watchTests(), generatorTests(), wireTests(), loadTests(), tlsTests(), lifecycleTests(), errorTests(),
	)
}
