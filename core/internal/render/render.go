package render

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/source"
)

const (
	// maxKeyLength of a Secret's key, in bytes (Kubernetes: DNS subdomain).
	maxKeyLength = 253
	// maxDataBytes of a Secret (Kubernetes: MaxSecretSize).
	maxDataBytes = 1 << 20
)

// Target is what the target should be.
type Target struct {
	// Name of the Secret.
	Name string
	// Type of the Secret.
	Type string
	// Labels and Annotations that it gets from the ExternalSecret.
	Labels, Annotations map[string]string
	// Data of the Secret.
	Data map[string][]byte
}

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

// Render makes the target of an ExternalSecret out of one result per entry of
// its plan.
func Render(es *esv1.ExternalSecret, p *plan.Plan, results []source.Result) (*Target, error) {
	target := &Target{Name: p.Target.Name, Type: "Opaque", Labels: maps.Clone(es.Labels), Annotations: shared(es.Annotations), Data: map[string][]byte{}}

	if len(results) != len(p.Entries) {
		return nil, fmt.Errorf("cannot render %d results to %d entries", len(results), len(p.Entries))
	}

	for i, entry := range p.Entries {
		values, err := render(entry, results[i]) //nolint:gosec // as many as entries: checked above
		if err != nil {
			return nil, err
		}

		maps.Copy(target.Data, values)
	}

	size := 0
	for key, value := range target.Data {
		size += len(key) + len(value)
	}

	if size > maxDataBytes {
		return nil, fmt.Errorf("the target's data has %d bytes: a Secret holds %d", size, maxDataBytes)
	}

	return target, nil
}

func render(entry plan.Entry, result source.Result) (map[string][]byte, error) {
	values := map[string][]byte{entry.SecretKey: result.Value}

	if entry.SecretKey == "" {
		var err error
		if values, err = convertKeys(entry, result.Map); err != nil {
			return nil, err
		}
	}

	for key, value := range values {
		decoded, err := decode(entry.Decoding, value)
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

// convertKeys makes every key one that a Secret may have. Empty keys are
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

		if len(to) > maxKeyLength {
			return nil, fmt.Errorf("%s: the key %.40q... has %d characters: a Secret's key has at most %d", entry.Field, to, len(to), maxKeyLength)
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
	// Kubernetes reserves names that begin with ".." for its own links.
	if key == "." || strings.HasPrefix(key, "..") {
		return fmt.Errorf("the key %q is not one that a Secret may have", key)
	}

	for _, r := range key {
		if r > unicode.MaxASCII {
			return fmt.Errorf("the key %q holds the character %q: a Secret's key has letters from a to z, digits, '-', '_' and '.' only; rewrite it", key, r)
		}
	}

	return nil
}
