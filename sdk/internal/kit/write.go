package kit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Owners of what the kit writes.
const (
	ownerA = "conformance-owner-a"
	ownerB = "conformance-owner-b"
)

// written is what tests that write need.
func written(capabilities ...pb.Capability) Needs {
	return Needs{Capabilities: capabilities, Writes: true, Fixtures: []Fixture{FixtureWrite}}
}

func writeTests() []Test {
	const (
		push   = pb.Capability_CAPABILITY_PUSH
		remove = pb.Capability_CAPABILITY_DELETE
		exists = pb.Capability_CAPABILITY_EXISTS
		read   = pb.Capability_CAPABILITY_READ
	)

	unowned := written(push)
	unowned.Fixtures = append(unowned.Fixtures, FixtureUnowned)

	return []Test{
		{ID: "exists.of-a-secret", Why: "A PushSecret with updatePolicy IfNotExists calls SecretExists first.", Needs: Needs{Capabilities: []pb.Capability{exists}, Fixtures: []Fixture{FixtureValue}}, Run: existsOfASecret},
		{ID: "exists.of-none", Why: "An absent secret is a valid answer and not an error.", Needs: Needs{Capabilities: []pb.Capability{exists}, Fixtures: []Fixture{FixtureMissingKey}}, Run: existsOfNone},
		{ID: "exists.of-a-property", Why: "A secret may exist without the requested property.", Needs: Needs{Capabilities: []pb.Capability{exists}, Fixtures: []Fixture{FixtureProperties, FixtureMissingProperty}}, Run: existsOfAProperty},
		{ID: "exists.key-is-needed", Why: "A missing key is an error of the caller, not an absent secret.", Needs: Needs{Capabilities: []pb.Capability{exists}}, Run: existsKey},
		{ID: "push.holds", Why: "After a push the secret contains the pushed value.", Needs: written(push, read), Run: pushHolds},
		{ID: "push.binary", Why: "Values are bytes.", Needs: written(push, read), Run: pushBinary},
		{ID: "push.repeated-changes-nothing", Why: "Every sync repeats the push: an unnecessary write creates versions, events and rotations.", Needs: written(push), Run: pushRepeated},
		{ID: "push.foreign-is-refused", Why: "A secret of another owner is not overwritten.", Needs: written(push, read), Run: pushForeign},
		{ID: "push.adopting-does-not-take-from-an-owner", Why: "Adoption applies only to secrets without an owner.", Needs: written(push, read), Run: pushAdoptForeign},
		{ID: "push.adopts-what-has-no-owner", Why: "A secret without an owner is taken over only if adoption is requested.", Needs: unowned, Run: pushAdopt},
		{ID: "push.if-not-exists", Why: "An existing value is not replaced.", Needs: written(push, read), Run: pushIfNotExists},
		{ID: "push.property", Why: "Several PushSecrets may each write one property of a secret.", Needs: written(push, read), Run: pushProperty},
		{ID: "push.key-is-needed", Why: "A push without a key has no defined destination.", Needs: written(push), Run: pushKey},
		{ID: "delete.removes", Why: "The secret does not exist after the call.", Needs: written(push, remove), Run: deleteRemoves},
		{ID: "delete.repeated-is-no-error", Why: "The call may be repeated after its answer was lost.", Needs: written(push, remove), Run: deleteRepeated},
		{ID: "delete.foreign-stays", Why: "A secret of another owner is not deleted.", Needs: written(push, remove), Run: deleteForeign},
		{ID: "delete.property", Why: "The other properties of the secret are kept.", Needs: written(push, remove, read), Run: deleteProperty},
		{ID: "delete.key-is-needed", Why: "A delete without a key has no defined object.", Needs: written(remove), Run: deleteKey},
	}
}

// writable reports whether the run may write, and has a prefix for it.
func (t *T) writable() bool {
	return t.target().Profile == Full && t.target().Fixtures.Write != nil
}

// key is a new one below the prefix.
func (t *T) key(name string) string {
	prefix := "conformance-"
	if write := t.target().Fixtures.Write; write != nil {
		prefix = write.Prefix
	}

	return fmt.Sprintf("%s%s-%d-%s", prefix, name, t.run.calls.Add(1), t.run.prefix)
}

// settings of a push.
func (t *T) settings() []byte {
	write := t.target().Fixtures.Write
	if write == nil || write.Metadata == nil {
		return nil
	}

	text, err := json.Marshal(write.Metadata)
	if err != nil {
		return nil
	}

	return text
}

// whole is a new value for a secret as a whole, in the form that the backend
// can hold.
func (t *T) whole() []byte {
	value := t.secretValue()
	if write := t.target().Fixtures.Write; write != nil && write.Documents {
		return fmt.Appendf(nil, `{"value":%q}`, value)
	}

	return value
}

// secretValue is a new value, which no error may hold.
func (t *T) secretValue() []byte {
	value := "conformance-value-" + rand.Text()
	t.run.record.guard(value)

	return []byte(value)
}

// request to push a value.
func (t *T) pushing(key string, value []byte, owner string) *pb.PushSecretRequest {
	return &pb.PushSecretRequest{
		Context: t.call(), Key: key, Value: value, Owner: owner, UpdatePolicy: pb.UpdatePolicy_UPDATE_POLICY_REPLACE, Metadata: t.settings(),
	}
}

// push makes a secret of the first owner hold a value.
func (t *T) push(ctx context.Context, key string, value []byte) *pb.PushSecretResponse {
	answer, err := t.store().PushSecret(ctx, t.pushing(key, value, ownerA))
	t.must("PushSecret", err)

	return answer
}

// contains checks the value of a secret.
func (t *T) contains(ctx context.Context, what, key string, want []byte) {
	t.holds(what, t.single(ctx, valueOf("0", key)), want)
}

// there reports whether a secret is there, in whichever way the provider can
// say it.
func (t *T) there(ctx context.Context, key string) bool {
	if t.claims(pb.Capability_CAPABILITY_EXISTS) {
		answer, err := t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: t.call(), Key: key})
		t.must("SecretExists", err)

		return answer.GetExists()
	}

	if !t.claims(pb.Capability_CAPABILITY_READ) {
		t.NotExercised("the provider claims neither EXISTS nor READ: the effect of a delete cannot be observed")
	}

	return t.single(ctx, valueOf("0", key)).GetError() == nil
}

func existsOfASecret(ctx context.Context, t *T) {
	for _, secret := range t.target().values() {
		answer, err := t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: t.call(), Key: secret.Key})
		t.must("SecretExists", err)

		if !answer.GetExists() {
			t.Errorf("SecretExists of secret %q, which can be read: false", secret.Key)
		}
	}
}

func existsOfNone(ctx context.Context, t *T) {
	answer, err := t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: t.call(), Key: t.target().Fixtures.MissingKey})
	t.must("SecretExists of fixtures.missingKey", err)

	if answer.GetExists() {
		t.Errorf("SecretExists of fixtures.missingKey: true")
	}
}

func existsOfAProperty(ctx context.Context, t *T) {
	for _, secret := range t.target().Fixtures.Secrets {
		want := map[string]bool{}
		for property := range secret.Properties {
			want[property] = true
		}

		if secret.MissingProperty != "" {
			want[secret.MissingProperty] = false
		}

		for property, there := range want {
			answer, err := t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: t.call(), Key: secret.Key, Property: property})
			t.must("SecretExists of a property", err)

			if answer.GetExists() != there {
				t.Errorf("SecretExists of property %q of secret %q: %t", property, secret.Key, answer.GetExists())
			}
		}
	}
}

func existsKey(ctx context.Context, t *T) {
	_, err := t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: t.call()})
	t.refused("SecretExists of no key", err, codes.InvalidArgument)
}

func pushHolds(ctx context.Context, t *T) {
	key, first, second := t.key("push"), t.whole(), t.whole()

	if !t.push(ctx, key, first).GetChanged() {
		t.Errorf("PushSecret of a new secret: changed is false")
	}

	t.contains(ctx, "a secret that was pushed", key, first)

	if !t.push(ctx, key, second).GetChanged() {
		t.Errorf("PushSecret of another value: changed is false")
	}

	t.contains(ctx, "a secret whose value was replaced", key, second)
}

func pushBinary(ctx context.Context, t *T) {
	if t.target().Fixtures.Write.Documents {
		t.Skip("the backend holds JSON objects, says fixtures.write.documents")
	}

	key, value := t.key("binary"), append(t.secretValue(), 0, 0xff, 0xfe, '\n', 0)

	t.push(ctx, key, value)
	t.contains(ctx, "a secret of bytes that was pushed", key, value)
}

func pushRepeated(ctx context.Context, t *T) {
	key, value := t.key("repeated"), t.whole()
	first := t.push(ctx, key, value)

	for range 2 {
		again := t.push(ctx, key, value)
		if again.GetChanged() {
			t.Errorf("PushSecret of the value that is there: changed is true")
		}

		if again.GetRevision() != first.GetRevision() {
			t.Errorf("PushSecret of the value that is there: it has another revision")
		}
	}
}

func pushForeign(ctx context.Context, t *T) {
	t.foreign(ctx, "PushSecret to another owner's secret", t.key("foreign"), false)
}

func pushAdoptForeign(ctx context.Context, t *T) {
	t.foreign(ctx, "PushSecret that adopts, to another owner's secret", t.key("adopted"), true)
}

func (t *T) foreign(ctx context.Context, what, key string, adopt bool) {
	value := t.whole()
	t.push(ctx, key, value)

	request := t.pushing(key, t.whole(), ownerB)
	request.Adopt = adopt

	_, err := t.store().PushSecret(ctx, request)
	t.refused(what, err, codes.FailedPrecondition)
	t.because(what, err, pb.ReasonNotOwned)
	t.contains(ctx, "a secret after a push by another owner", key, value)
}

func pushAdopt(ctx context.Context, t *T) {
	key, value := t.target().Fixtures.Write.Unowned, t.whole()

	const what = "PushSecret to fixtures.write.unowned, which carries no mark"

	_, err := t.store().PushSecret(ctx, t.pushing(key, value, ownerA))
	t.refused(what, err, codes.FailedPrecondition)
	t.because(what, err, pb.ReasonNotOwned)

	request := t.pushing(key, value, ownerA)
	request.Adopt = true

	answer, err := t.store().PushSecret(ctx, request)
	t.must(what+", with adopt", err)

	if !answer.GetChanged() {
		t.Errorf("%s, with adopt: changed is false", what)
	}

	_, err = t.store().PushSecret(ctx, t.pushing(key, t.whole(), ownerB))
	t.refused("PushSecret by another owner to a secret that was adopted", err, codes.FailedPrecondition)
}

func pushIfNotExists(ctx context.Context, t *T) {
	key, value := t.key("kept"), t.whole()

	request := t.pushing(key, value, ownerA)
	request.UpdatePolicy = pb.UpdatePolicy_UPDATE_POLICY_IF_NOT_EXISTS

	answer, err := t.store().PushSecret(ctx, request)
	t.must("PushSecret IF_NOT_EXISTS of a new secret", err)

	if !answer.GetChanged() {
		t.Errorf("PushSecret IF_NOT_EXISTS of a new secret: changed is false")
	}

	request = t.pushing(key, t.whole(), ownerA)
	request.UpdatePolicy = pb.UpdatePolicy_UPDATE_POLICY_IF_NOT_EXISTS

	answer, err = t.store().PushSecret(ctx, request)
	t.must("PushSecret IF_NOT_EXISTS of a secret that exists", err)

	if answer.GetChanged() {
		t.Errorf("PushSecret IF_NOT_EXISTS of a secret that exists: changed is true")
	}

	t.contains(ctx, "a secret after a push IF_NOT_EXISTS", key, value)
}

// pair pushes two properties of a new secret. Not every backend has them.
func (t *T) pair(ctx context.Context, name string) (key string, values map[string][]byte) {
	key, values = t.key(name), map[string][]byte{"left": t.secretValue(), "right": t.secretValue()}

	for _, property := range []string{"left", "right"} {
		request := t.pushing(key, values[property], ownerA)
		request.Property = property

		_, err := t.store().PushSecret(ctx, request)
		if status.Code(err) == codes.Unimplemented {
			t.Skip("the provider does not push properties")
		}

		t.must("PushSecret of a property", err)
	}

	return key, values
}

// part checks what a property of a secret holds.
func (t *T) part(ctx context.Context, what, key, property string, want []byte) {
	read := valueOf("0", key)
	read.Property = property
	t.holds(what, t.single(ctx, read), want)
}

func pushProperty(ctx context.Context, t *T) {
	key, values := t.pair(ctx, "properties")
	t.part(ctx, "a property that was pushed first", key, "left", values["left"])
	t.part(ctx, "a property that was pushed last", key, "right", values["right"])
}

func deleteProperty(ctx context.Context, t *T) {
	key, values := t.pair(ctx, "properties")

	answer, err := t.store().DeleteSecret(ctx, &pb.DeleteSecretRequest{Context: t.call(), Key: key, Property: "left", Owner: ownerA})
	if status.Code(err) == codes.Unimplemented {
		t.Skip("the provider does not delete properties")
	}

	t.must("DeleteSecret of a property", err)

	if !answer.GetChanged() {
		t.Errorf("DeleteSecret of a property: changed is false")
	}

	t.part(ctx, "the other property of a secret, after one was deleted", key, "right", values["right"])

	read := valueOf("0", key)
	read.Property = "left"

	if t.single(ctx, read).GetError() == nil {
		t.Errorf("a property that was deleted: it is still there")
	}
}

func pushKey(ctx context.Context, t *T) {
	_, err := t.store().PushSecret(ctx, t.pushing("", []byte("x"), ownerA))
	t.refused("PushSecret of no key", err, codes.InvalidArgument)
}

// remove deletes a secret.
func (t *T) remove(ctx context.Context, key string) *pb.DeleteSecretResponse {
	answer, err := t.store().DeleteSecret(ctx, &pb.DeleteSecretRequest{Context: t.call(), Key: key, Owner: ownerA})
	t.must("DeleteSecret", err)

	return answer
}

func deleteRemoves(ctx context.Context, t *T) {
	key := t.key("deleted")
	t.push(ctx, key, t.whole())

	if !t.there(ctx, key) {
		t.Fatalf("a secret that was pushed: it is not there")
	}

	if !t.remove(ctx, key).GetChanged() {
		t.Errorf("DeleteSecret: changed is false")
	}

	if t.there(ctx, key) {
		t.Errorf("a secret that was deleted: it is still there")
	}
}

func deleteRepeated(ctx context.Context, t *T) {
	key := t.key("deleted")
	t.push(ctx, key, t.whole())
	t.remove(ctx, key)

	if t.remove(ctx, key).GetChanged() {
		t.Errorf("DeleteSecret of a secret that was deleted: changed is true")
	}

	if t.remove(ctx, t.key("never")).GetChanged() {
		t.Errorf("DeleteSecret of a secret that never was: changed is true")
	}
}

func deleteForeign(ctx context.Context, t *T) {
	key := t.key("foreign")
	t.push(ctx, key, t.whole())

	_, err := t.store().DeleteSecret(ctx, &pb.DeleteSecretRequest{Context: t.call(), Key: key, Owner: ownerB})
	t.refused("DeleteSecret of another owner's secret", err, codes.FailedPrecondition)
	t.because("DeleteSecret of another owner's secret", err, pb.ReasonNotOwned)

	if !t.there(ctx, key) {
		t.Errorf("a secret after a delete by another owner: it does not exist")
	}
}

func deleteKey(ctx context.Context, t *T) {
	_, err := t.store().DeleteSecret(ctx, &pb.DeleteSecretRequest{Context: t.call(), Owner: ownerA})
	t.refused("DeleteSecret of no key", err, codes.InvalidArgument)
}
