package ownership

import (
	"maps"

	"github.com/external-secrets/eso/sdk/provider"
)

// Names and values of a mark where a backend stores it as tags, labels or other
// metadata.
const (
	// OwnerTag holds the owner.
	OwnerTag = "external-secrets-owner"
	// ManagedTag and ManagedValue are on every secret that External Secrets writes.
	// ESO v1 sets no other mark.
	ManagedTag   = "managed-by"
	ManagedValue = "external-secrets"
)

// Mark is what a backend stores with a secret about its owner. The zero value is
// that of a secret that External Secrets has not written.
type Mark struct {
	// Owner as it is stored; empty means none.
	Owner string
	// Managed reports that External Secrets wrote the secret, for any owner.
	Managed bool
}

// MarkOf returns the mark in the tags of a secret.
func MarkOf(tags map[string]string) Mark {
	return Mark{Owner: tags[OwnerTag], Managed: tags[ManagedTag] == ManagedValue}
}

// Backend describes how a backend stores marks.
type Backend struct {
	// Place of the owner, for errors, such as "tag external-secrets-owner".
	Place string
	// Encode returns an owner in the form in which it is stored; nil means
	// unchanged. Equal owners have equal forms, and different owners different
	// ones.
	Encode func(owner string) string
	// Private keeps the stored owner out of errors, for backends where it is read
	// from a place that may hold something else.
	Private bool
}

// Check returns an error, which is provider.NotOwned, unless the owner may write or
// delete an existing secret with the mark: its own secret; one that ESO v1 wrote,
// which has no owner; and one without a mark if adopt is set. The name is that of
// the secret in the error, such as `secret "a"`.
func (b Backend) Check(name string, mark Mark, owner string, adopt bool) error {
	switch {
	case b.Owns(mark, owner):
		return nil
	case mark.Owner != "" && b.Private:
		return provider.NotOwned("%s belongs to another owner, by its %s", name, b.Place)
	case mark.Owner != "":
		return provider.NotOwned("%s belongs to another owner: its %s is %q", name, b.Place, mark.Owner)
	case mark.Managed, adopt:
		return nil
	default:
		return provider.NotOwned("%s was not written by External Secrets: it has no %s; adopt it, or use another key", name, b.Place)
	}
}

// Owns reports whether a mark names the owner.
func (b Backend) Owns(mark Mark, owner string) bool {
	return mark.Owner != "" && mark.Owner == b.encode(owner)
}

// Mark returns the mark of an owner.
func (b Backend) Mark(owner string) Mark { return Mark{Owner: b.encode(owner), Managed: true} }

// Tags returns other tags with the mark of an owner added.
func (b Backend) Tags(owner string, others map[string]string) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, others)

	tags[OwnerTag], tags[ManagedTag] = b.encode(owner), ManagedValue

	return tags
}

// Missing returns the wanted tags that a secret does not have, or has with another
// value.
func Missing(has, wanted map[string]string) map[string]string {
	missing := map[string]string{}

	for name, value := range wanted {
		if held, ok := has[name]; !ok || held != value {
			missing[name] = value
		}
	}

	return missing
}

func (b Backend) encode(owner string) string {
	if b.Encode == nil {
		return owner
	}

	return b.Encode(owner)
}
