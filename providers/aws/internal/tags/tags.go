package tags

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"

	"github.com/external-secrets/eso/sdk/ownership"
)

// maxValue bounds a tag's value, in bytes.
const maxValue = 256

// valid matches the values that a tag can have.
var valid = regexp.MustCompile(`^[a-zA-Z0-9 _.:/=+@-]*$`)

// Owners returns how owners are stored: in tags, as the owner itself, or as its
// hash where a tag cannot have that value.
func Owners() ownership.Backend {
	return ownership.Backend{Place: "tag " + ownership.OwnerTag, Encode: encode}
}

func encode(owner string) string {
	if len(owner) <= maxValue && valid.MatchString(owner) {
		return owner
	}

	sum := sha256.Sum256([]byte(owner))

	return "sha256:" + hex.EncodeToString(sum[:])
}

// Document returns tags as a JSON object.
func Document(tags map[string]string) []byte {
	if tags == nil {
		tags = map[string]string{}
	}

	// Strings always encode.
	text, _ := json.Marshal(tags) //nolint:errchkjson // see above

	return text
}

// Revision returns the revision of such a document.
func Revision(document []byte) string {
	sum := sha256.Sum256(document)

	return hex.EncodeToString(sum[:8])
}
