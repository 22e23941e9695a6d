package render

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

const (
	// maxKeyLength of a Secret's key, in bytes (Kubernetes: DNS subdomain).
	maxKeyLength = 253
	// maxDataBytes of a Secret (Kubernetes: MaxSecretSize).
	maxDataBytes = 1 << 20
)

// Value is what was read for one entry of a plan.
type Value struct {
	// Value of an entry of data.
	Value []byte
	// Map of an entry of dataFrom.
	Map map[string][]byte
	// Absent says that the store has proven that there is nothing, and that the
	// deletion policy leaves it out.
	Absent bool
	// Asked says what was asked for, such as: key "db".
	Asked string
}

// Objects are the contents of the objects that templates are read from.
type Objects map[plan.Object]map[string]string

// Target is what the target should be.
type Target struct {
	// Name and policies of the target.
	plan.Target
	// Type of the Secret; empty means Opaque if it is created.
	Type string
	// Labels, Annotations and Finalizers that it gets.
	Labels, Annotations map[string]string
	Finalizers          []string
	// Data of the Secret.
	Data map[string][]byte
	// Content of a target that is no Secret: its fields besides apiVersion,
	// kind and metadata.
	Content map[string]any
	// Empty means that the stores returned nothing, regardless of templates.
	Empty bool
	// Absent says what the stores did not have, for people.
	Absent []string
}

// Renderer renders targets.
type Renderer struct {
	templates, transforms Engine
}

// Engine renders one template. Its errors name the template, and hold no value.
type Engine interface {
	Render(name, text string, data map[string]string) ([]byte, error)
}

// New returns a renderer. templates has the delimiters that the operator was
// given, transforms, for the keys of a rewrite, the usual ones.
func New(templates, transforms Engine) *Renderer {
	return &Renderer{templates: templates, transforms: transforms}
}

// Render renders the target of an ExternalSecret out of one value per entry of
// its plan.
func (r *Renderer) Render(es *esv1.ExternalSecret, p *plan.Plan, values []Value, objects Objects) (*Target, error) {
	if len(values) != len(p.Entries) {
		return nil, fmt.Errorf("cannot render %d values to %d entries", len(values), len(p.Entries))
	}

	target := &Target{Target: p.Target, Data: map[string][]byte{}}

	for i, value := range values {
		entry := p.Entries[i] // as many as values: checked above

		if value.Absent {
			target.Absent = append(target.Absent, entry.Field+" ("+value.Asked+")")

			continue
		}

		found, err := r.entry(entry, value)
		if err != nil {
			return nil, err
		}

		maps.Copy(target.Data, found)
	}

	target.Empty = len(target.Data) == 0

	// Templates may need what is not there: they must not keep a target from
	// what the policy says of it.
	if target.Action() != Written {
		return target, nil
	}

	if err := r.template(es, target, objects); err != nil {
		return nil, err
	}

	if !target.IsSecret() {
		if err := place(target); err != nil {
			return nil, err
		}
	}

	return target, check(target)
}

// check refuses what the API server would refuse with a message that names no
// entry, and what must never be written.
func check(target *Target) error {
	size := 0

	for key, value := range target.Data {
		if err := validateKey(key); err != nil {
			return err
		}

		size += len(key) + len(value)
	}

	if size > maxDataBytes {
		return fmt.Errorf("the target's data has %d bytes: a %s holds %d", size, target.Noun(), maxDataBytes)
	}

	// The token controller would fill such a Secret with a token.
	if _, ok := target.Annotations[annotationServiceAccount]; ok {
		return fmt.Errorf("the target would get the annotation %s: it asks for a ServiceAccount's token, and is refused", annotationServiceAccount)
	}

	return nil
}

// annotationServiceAccount names the ServiceAccount whose token a Secret of
// type kubernetes.io/service-account-token gets.
const annotationServiceAccount = "kubernetes.io/service-account.name"

// shared leaves out the annotations that belong to the ExternalSecret alone.
func shared(annotations map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		switch key {
		case "kubectl.kubernetes.io/last-applied-configuration", esv1.AnnotationDataHash, esv1.AnnotationForceSync:
			return true
		default:
			return false
		}
	})

	return kept
}

// entry returns the keys and values that one entry adds.
func (r *Renderer) entry(entry plan.Entry, value Value) (map[string][]byte, error) {
	values := map[string][]byte{entry.SecretKey: value.Value}

	if entry.SecretKey == "" {
		var err error
		if values, err = r.keys(entry, value.Map); err != nil {
			return nil, err
		}
	}

	for key, raw := range values {
		decoded, err := decode(entry.Decoding, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: the value of key %q is not %s: its decodingStrategy says that it is", entry.Field, key, entry.Decoding)
		}

		if entry.NullByte == esv1.NullByteFail && bytes.IndexByte(decoded, 0) >= 0 {
			return nil, fmt.Errorf("%s: the value of key %q holds a NUL byte, and its nullBytePolicy is Fail", entry.Field, key)
		}

		values[key] = decoded
	}

	return values, nil
}

// keys converts every key of an entry of dataFrom to one that a Secret may have.
// Where the entry rewrites its keys, it has said what they are to be.
func (r *Renderer) keys(entry plan.Entry, values map[string][]byte) (map[string][]byte, error) {
	if len(entry.Rewrite) == 0 {
		return convertKeys(entry, values)
	}

	rewritten, err := r.rewrite(entry, values)
	if err != nil {
		return nil, err
	}

	delete(rewritten, "")

	for key := range rewritten {
		if err := validateKey(key); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Field, err)
		}
	}

	return rewritten, nil
}

// convertKeys converts every key to one that a Secret may have. Empty keys are
// dropped; two keys that become the same are an error.
func convertKeys(entry plan.Entry, values map[string][]byte) (map[string][]byte, error) {
	converted := make(map[string][]byte, len(values))
	origin := make(map[string]string, len(values))

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key == "" {
			continue
		}

		to := convertKey(entry.Conversion, key)

		if former, taken := origin[to]; taken {
			return nil, fmt.Errorf("%s: the keys %q and %q both become %q", entry.Field, former, key, to)
		}

		if err := validateKey(to); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Field, err)
		}

		origin[to] = key
		converted[to] = values[key]
	}

	return converted, nil
}

func convertKey(strategy esv1.ConversionStrategy, key string) string {
	var out []byte

	for _, r := range key {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '.', r == '_':
			out = append(out, string(r)...)
		case strategy == esv1.ConversionUnicode:
			out = append(out, fmt.Sprintf("_U%04x_", r)...)
		default:
			out = append(out, '_')
		}
	}

	return string(out)
}

// validateKey refuses what the API server would refuse with a message that
// names no entry.
func validateKey(key string) error {
	switch {
	case len(key) > maxKeyLength:
		return fmt.Errorf("the key %.40q... has %d characters: a Secret's key has at most %d", key, len(key), maxKeyLength)
	// Kubernetes reserves names that begin with ".." for its own links.
	case key == "", key == ".", strings.HasPrefix(key, ".."):
		return fmt.Errorf("the key %q is not one that a Secret may have", key)
	}

	for _, r := range key {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		default:
			return fmt.Errorf("the key %q holds the character %q: a Secret's key has letters from a to z, digits, '-', '_' and '.' only; rewrite it", key, r)
		}
	}

	return nil
}
