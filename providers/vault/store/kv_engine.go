package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/vault/api"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// engine converts keys to paths of a key/value engine, and its responses to
// documents.
type engine struct {
	mount   string
	version v2alpha1.KVVersion
}

// v2 reports whether the engine keeps versions.
func (e engine) v2() bool { return e.version != v2alpha1.KVv1 }

// reserved reports whether a mount is one of Vault's own. If the first part of a key
// is the mount, a key could name such a path: auth/token/lookup-self returns the
// store's own token.
func reserved(mount string) bool {
	switch mount {
	case "auth", "cubbyhole", "identity", "sys":
		return true
	default:
		return false
	}
}

// location is the path of a secret and the format of the response.
type location struct {
	mount string
	// keyed reports whether the key names the mount, not the config.
	keyed    bool
	path     string
	query    map[string][]string
	v2       bool
	metadata bool
}

// misfit returns the error that there is no engine at the location, or one of another
// version than the config says. If the key names the mount, that is an error of this
// key: other keys of the store may name other engines.
func (l location) misfit(format string, args ...any) error {
	err := provider.InvalidConfig(format, args...)
	err.StoreScope = !l.keyed

	return err
}

// locate returns the location of a key. A key may repeat the mount and, on version 2,
// the "data" that follows it in the API; it may not name a path outside of the mount,
// nor one of Vault's own.
func (e engine) locate(key, version string, metadata bool) (location, error) {
	v2 := e.v2()

	mount, rest := strings.Trim(e.mount, "/"), strings.Trim(key, "/")
	keyed := mount == ""

	var repeated bool
	if keyed {
		if mount, rest, repeated = strings.Cut(rest, "/"); !repeated {
			return location{}, provider.InvalidRequest("key %q names no mount, and the config's spec.path is empty", key)
		}

		if reserved(mount) {
			return location{}, provider.InvalidRequest("key %q leads to %s/, which is no key/value engine", key, mount)
		}
	} else {
		rest, repeated = strings.CutPrefix(rest, mount+"/")
	}

	if v2 && repeated {
		rest = strings.TrimPrefix(rest, "data/")
	}

	for part := range strings.SplitSeq(mount+"/"+rest, "/") {
		if part == "" || part == "." || part == ".." {
			return location{}, provider.InvalidRequest("key %q is not the path of a secret: it has an empty part, or . or ..", key)
		}
	}

	if !v2 {
		switch {
		case version != "":
			return location{}, provider.InvalidRequest("secret %q: version %q: a KV version 1 engine keeps no versions", key, version)
		case metadata:
			return location{}, provider.Unsupported("secret %q: a KV version 1 engine keeps no metadata", key)
		}

		return location{mount: mount, keyed: keyed, path: mount + "/" + rest}, nil
	}

	if metadata {
		return location{mount: mount, keyed: keyed, path: mount + "/metadata/" + rest, v2: true, metadata: true}, nil
	}

	from := location{mount: mount, keyed: keyed, path: mount + "/data/" + rest, v2: true}

	if version != "" {
		if n, err := strconv.ParseUint(version, 10, 32); err != nil || n == 0 {
			return location{}, provider.InvalidRequest("secret %q: version %q is not a number from 1", key, version)
		}

		from.query = map[string][]string{"version": {version}}
	}

	return from, nil
}

// document converts a response to a document.
func (l location) document(key, version string, secret *api.Secret) (document.Document, error) {
	if secret == nil || secret.Data == nil {
		return document.Document{}, provider.Unavailable("cannot read secret %q: Vault's answer holds no data", key)
	}

	if l.metadata {
		return encode(key, secret.Data["custom_metadata"], "")
	}

	if !l.v2 {
		return encode(key, withoutMarks(secret.Data), "")
	}

	data, there := secret.Data["data"].(map[string]any)
	if !there {
		if _, enveloped := secret.Data["metadata"]; enveloped {
			return document.Document{}, missing(key, version)
		}

		return document.Document{}, l.misfit("the answer to secret %q is not one of a KV version 2 engine: is spec.version right?", key)
	}

	return encode(key, data, revision(secret.Data["metadata"]))
}

// absence converts a response 404. Only a response of the engine itself proves that a
// secret does not exist: an empty list of errors, or a version without data. Any
// other 404, such as that of a missing mount or a gateway, proves nothing.
func (l location) absence(key, version string, body []byte) error {
	var answer struct {
		Errors   *[]string `json:"errors"`
		Warnings []string  `json:"warnings"`
		Data     *struct {
			Data     json.RawMessage `json:"data"`
			Metadata json.RawMessage `json:"metadata"`
		} `json:"data"`
	}

	err := json.Unmarshal(body, &answer)

	switch {
	case err != nil:
	case answer.Data != nil && answer.Data.Metadata != nil && l.v2,
		answer.Errors != nil && len(*answer.Errors) == 0:
		return missing(key, version)
	case answer.Errors != nil:
		return l.misfit("cannot read secret %q: Vault has no engine at %q: %s", key, l.mount, brief(*answer.Errors))
	case len(answer.Warnings) > 0:
		return l.misfit("cannot read secret %q: spec.path or spec.version do not fit the engine: %s", key, brief(answer.Warnings))
	}

	return provider.Unavailable("cannot read secret %q: the server answers 404, and not as Vault does", key)
}

func missing(key, version string) error {
	if version != "" {
		return provider.NotFound("secret %q has no version %s, or it was deleted", key, version)
	}

	return provider.NotFound("secret %q does not exist, or its latest version was deleted", key)
}

// revision returns the revision of a version 2 secret: its number and the time of the
// write, because the numbers of a secret that was destroyed and created again start
// over.
func revision(metadata any) string {
	fields, ok := metadata.(map[string]any)
	if !ok {
		return ""
	}

	return fmt.Sprintf("%v@%v", fields["version"], fields["created_time"])
}

// encode returns the value as a JSON text, from which properties are selected.
func encode(key string, value any, revision string) (document.Document, error) {
	if value == nil {
		value = map[string]any{}
	}

	raw, err := document.Encode(value)
	if err != nil {
		return document.Document{}, provider.Unavailable("cannot encode secret %q", key)
	}

	if revision == "" {
		sum := sha256.Sum256(raw)
		revision = hex.EncodeToString(sum[:8])
	}

	return document.Document{Raw: raw, Revision: revision}, nil
}
