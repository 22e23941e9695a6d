package mark

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// Owner is the tag that holds whose a secret is.
	Owner = "external-secrets-owner"
	// Managed is the tag of all that External Secrets writes. ESO v1 sets no
	// other.
	Managed = "managed-by"
	// ManagedBy is its value.
	ManagedBy = "external-secrets"

	// maxTag bounds a tag's value.
	maxTag = 256
)

// valid is what the value of a tag may hold.
var valid = regexp.MustCompile(`^[a-zA-Z0-9 _.:/=+@-]*$`)

// Of an owner, as the tag's value: the owner itself, or its hash where a tag
// cannot hold it.
func Of(owner string) string {
	if len(owner) <= maxTag && valid.MatchString(owner) {
		return owner
	}

	sum := sha256.Sum256([]byte(owner))

	return "sha256:" + hex.EncodeToString(sum[:])
}

// Take tells whether the owner may write a secret with these tags, and whether
// its mark has yet to be set. A secret of another owner is refused; so is one
// without a mark, unless it is to be adopted or ESO v1 wrote it.
func Take(key string, tags map[string]string, owner string, adopt bool) (unmarked bool, err error) {
	switch marked := tags[Owner]; {
	case marked == Of(owner):
		return tags[Managed] != ManagedBy, nil
	case marked != "":
		return false, provider.NotOwned("secret %q belongs to another owner: its tag %s says %q", key, Owner, marked)
	case adopt, tags[Managed] == ManagedBy:
		return true, nil
	default:
		return false, provider.NotOwned("secret %q was not written by External Secrets: it carries no tag %s, and is not to be adopted", key, Owner)
	}
}

// Tags of a secret that an owner writes: its mark, and others.
func Tags(owner string, others map[string]string) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, others)

	tags[Owner], tags[Managed] = Of(owner), ManagedBy

	return tags
}

// Missing gives the tags that are wanted and not there.
func Missing(there, wanted map[string]string) map[string]string {
	missing := map[string]string{}

	for name, value := range wanted {
		if has, ok := there[name]; !ok || has != value {
			missing[name] = value
		}
	}

	return missing
}

// Document gives tags as a JSON object.
func Document(tags map[string]string) []byte {
	if tags == nil {
		tags = map[string]string{}
	}

	// Strings always encode.
	text, _ := json.Marshal(tags) //nolint:errchkjson // see above

	return text
}

// Revision of such a document.
func Revision(document []byte) string {
	sum := sha256.Sum256(document)

	return hex.EncodeToString(sum[:8])
}
