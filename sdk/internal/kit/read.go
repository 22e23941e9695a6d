package kit

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// isBinary reports whether a secret's value is not text.
func isBinary(s Secret) bool {
	whole, ok := s.whole()

	return ok && !utf8.Valid(whole)
}

// valueOf is a read of a whole value.
func valueOf(id, key string) *pb.SecretRead {
	return &pb.SecretRead{Id: id, Shape: pb.Shape_SHAPE_VALUE, Key: key, MetadataPolicy: pb.MetadataPolicy_METADATA_POLICY_NONE}
}

func mapOf(id, key string) *pb.SecretRead {
	read := valueOf(id, key)
	read.Shape = pb.Shape_SHAPE_MAP

	return read
}

// reads is what tests of reads need.
func reads(fixtures ...Fixture) Needs {
	return Needs{Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ}, Fixtures: fixtures}
}

func readTests() []Test {
	return []Test{
		{ID: "read.value", Why: "Reading a value is the basic function of a provider.", Needs: reads(FixtureValue), Run: readValues},
		{ID: "read.binary", Why: "Values are bytes: a key store is not text.", Needs: reads(FixtureBinary), Run: readBinary},
		{ID: "read.property", Why: "A target's key often contains one property of a secret.", Needs: reads(FixtureProperties), Run: readProperties},
		{ID: "read.map", Why: "dataFrom.extract creates one target key for each key of the map.", Needs: reads(FixtureMap), Run: readMaps},
		{ID: "read.map-has-each-key-once", Why: "With two values for one key, the value in the target would be arbitrary: the operator rejects both.", Needs: reads(FixtureMap), Run: readMapKeys},
		{ID: "read.version", Why: "A reference with a version must read exactly that version.", Needs: reads(FixtureVersions), Run: readVersions},
		{ID: "read.metadata", Why: "With metadataPolicy Fetch, tags are returned instead of the value.", Needs: reads(FixtureMetadata), Run: readMetadata},
		{ID: "read.repeated", Why: "A read has no side effects, so that it can be retried.", Needs: reads(FixtureValue), Run: readRepeated},
		{ID: "read.missing-key-is-not-found", Why: "NOT_FOUND may delete a target: it must be returned only if the secret is known not to exist, and as the error of that read.", Needs: reads(FixtureMissingKey), Run: missingKey},
		{ID: "read.missing-property-is-not-found", Why: "A missing property must be distinguishable from a missing secret.", Needs: reads(FixtureMissingProperty), Run: missingProperty},
		{ID: "read.missing-version-is-not-found", Why: "The latest version must not be returned in place of a missing one.", Needs: reads(FixtureMissingVersion), Run: missingVersion},
		{ID: "read.key-is-needed", Why: "A read without a key is an error of the caller, not a missing secret.", Needs: reads(), Run: keyIsNeeded},
		{ID: "read.shape-is-needed", Why: "A provider must not guess the requested shape.", Needs: reads(), Run: shapeIsNeeded},
	}
}

// get performs a batch and returns the results by id. It ends the test if the
// batch fails; other tests check that the ids are those of the reads.
func (t *T) get(ctx context.Context, reads ...*pb.SecretRead) map[string]*pb.SecretResult {
	response, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: reads})
	t.must(fmt.Sprintf("a batch of %d reads", len(reads)), err)

	results := map[string]*pb.SecretResult{}
	for _, result := range response.GetResults() {
		results[result.GetId()] = result
	}

	return results
}

// single performs one read.
func (t *T) single(ctx context.Context, read *pb.SecretRead) *pb.SecretResult {
	results := t.get(ctx, read)
	if len(results) != 1 || results[read.GetId()] == nil {
		t.Fatalf("a batch of one read: it was answered with %d results, or with another id", len(results))
	}

	return results[read.GetId()]
}

// holds checks that a read was answered with a value. Failures do not contain the
// value.
func (t *T) holds(what string, result *pb.SecretResult, want []byte) {
	if failure := result.GetError(); failure != nil {
		t.Errorf("%s: it failed with %s (%s)", what, name(codes.Code(failure.GetCode())), failure.GetReason()) //nolint:gosec // shown only

		return
	}

	answer, ok := result.GetOutcome().(*pb.SecretResult_Value)
	if !ok {
		t.Errorf("%s: it was not answered with a value", what)

		return
	}

	if !bytes.Equal(answer.Value, want) {
		t.Errorf("%s: the answer has %d bytes and is not the %d bytes that are there", what, len(answer.Value), len(want))
	}
}

// absent checks that a read failed with NOT_FOUND for a reason.
func (t *T) absent(what string, result *pb.SecretResult, reason string) {
	failure := result.GetError()

	switch {
	case failure == nil:
		t.Errorf("%s: it was not answered with an error", what)
	case failure.GetCode() != int32(codes.NotFound):
		t.Errorf("%s: the code is %s, not NOT_FOUND", what, name(codes.Code(failure.GetCode()))) //nolint:gosec // shown only
	case failure.GetReason() != reason:
		t.Errorf("%s: the reason is %q, not %s", what, failure.GetReason(), reason)
	}
}

func readValues(ctx context.Context, t *T) {
	for _, secret := range t.target().values() {
		whole, _ := secret.whole()
		t.holds(fmt.Sprintf("secret %q", secret.Key), t.single(ctx, valueOf("0", secret.Key)), whole)
	}
}

func readBinary(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		if isBinary(secret) {
			whole, _ := secret.whole()
			t.holds(fmt.Sprintf("secret %q", secret.Key), t.single(ctx, valueOf("0", secret.Key)), whole)
		}
	}
}

func readProperties(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		for _, property := range slices.Sorted(maps.Keys(secret.Properties)) {
			read := valueOf("0", secret.Key)
			read.Property = property
			t.holds(fmt.Sprintf("property %q of secret %q", property, secret.Key), t.single(ctx, read), []byte(secret.Properties[property]))
		}
	}
}

// entries of a map answer, and the keys that are there twice.
func entries(m *pb.SecretMap) (values map[string][]byte, twice []string) {
	values = map[string][]byte{}

	for _, entry := range m.GetEntries() {
		if _, ok := values[entry.GetKey()]; ok {
			twice = append(twice, entry.GetKey())
		}

		values[entry.GetKey()] = entry.GetValue()
	}

	return values, twice
}

// mapping reads a secret as a map.
func (t *T) mapping(ctx context.Context, key string) *pb.SecretMap {
	answer, ok := t.single(ctx, mapOf("0", key)).GetOutcome().(*pb.SecretResult_Map)
	if !ok {
		t.Fatalf("a read of secret %q as a map: it was not answered with one", key)
	}

	return answer.Map
}

func readMaps(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		if secret.Map == nil {
			continue
		}

		got, _ := entries(t.mapping(ctx, secret.Key))

		for _, key := range slices.Sorted(maps.Keys(secret.Map)) {
			if value, ok := got[key]; !ok || string(value) != secret.Map[key] {
				t.Errorf("secret %q as a map: key %q is not there, or has another value", secret.Key, key)
			}
		}

		if len(got) > len(secret.Map) {
			t.Errorf("secret %q as a map: it has %d keys, and fixtures.secrets[].map has %d", secret.Key, len(got), len(secret.Map))
		}
	}
}

func readMapKeys(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		if secret.Map == nil {
			continue
		}

		if _, twice := entries(t.mapping(ctx, secret.Key)); len(twice) > 0 {
			t.Errorf("secret %q as a map: %d keys are there more than once", secret.Key, len(twice))
		}
	}
}

func readVersions(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		for _, version := range slices.Sorted(maps.Keys(secret.Versions)) {
			read := valueOf("0", secret.Key)
			read.Version = version
			t.holds(fmt.Sprintf("version %q of secret %q", version, secret.Key), t.single(ctx, read), []byte(secret.Versions[version]))
		}
	}
}

func readMetadata(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		for _, property := range slices.Sorted(maps.Keys(secret.Metadata)) {
			read := valueOf("0", secret.Key)
			read.Property, read.MetadataPolicy = property, pb.MetadataPolicy_METADATA_POLICY_FETCH
			t.holds(fmt.Sprintf("metadata %q of secret %q", property, secret.Key), t.single(ctx, read), []byte(secret.Metadata[property]))
		}
	}
}

func readRepeated(ctx context.Context, t *T) {
	secret := t.target().values()[0]
	whole, _ := secret.whole()

	var revision string

	for i := range 5 {
		result := t.single(ctx, valueOf(strconv.Itoa(i), secret.Key))
		t.holds(fmt.Sprintf("secret %q, time %d", secret.Key, i+1), result, whole)

		if i > 0 && result.GetRevision() != revision {
			t.Errorf("secret %q, time %d: another revision, and nothing has changed", secret.Key, i+1)
		}

		revision = result.GetRevision()
	}
}

func missingKey(ctx context.Context, t *T) {
	key := t.target().Fixtures.MissingKey
	t.absent(fmt.Sprintf("secret %q, which does not exist", key), t.single(ctx, valueOf("0", key)), pb.ReasonNotFound)
	t.absent(fmt.Sprintf("secret %q, which does not exist, as a map", key), t.single(ctx, mapOf("0", key)), pb.ReasonNotFound)
}

func missingProperty(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		if secret.MissingProperty != "" {
			read := valueOf("0", secret.Key)
			read.Property = secret.MissingProperty
			t.absent(fmt.Sprintf("property %q of secret %q, which does not exist", secret.MissingProperty, secret.Key), t.single(ctx, read), pb.ReasonPropertyNotFound)
		}
	}
}

func missingVersion(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		if secret.MissingVersion != "" {
			read := valueOf("0", secret.Key)
			read.Version = secret.MissingVersion
			t.absent(fmt.Sprintf("version %q of secret %q, which does not exist", secret.MissingVersion, secret.Key), t.single(ctx, read), pb.ReasonNotFound)
		}
	}
}

func keyIsNeeded(ctx context.Context, t *T) {
	_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{valueOf("0", "")}})
	t.refused("a read of no key", err, codes.InvalidArgument)
}

func shapeIsNeeded(ctx context.Context, t *T) {
	for _, shape := range []pb.Shape{pb.Shape_SHAPE_UNSPECIFIED, 99} {
		read := valueOf("0", either(t.target().Fixtures.MissingKey, "conformance-missing"))
		read.Shape = shape

		_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{read}})
		t.refused("a read of shape "+shape.String(), err, codes.InvalidArgument)
	}
}
