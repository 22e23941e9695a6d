// Package object shows a rendered target as the object that the operator would
// write, but for the operator's own marks: its labels, its annotations and the
// owner reference, which only a cluster has.
package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"
)

// hidden replaces a value that is not shown; it reveals nothing of it, not even
// its length.
const hidden = "(hidden)"

// opaque is the type of a Secret that is given none.
const opaque = "Opaque"

// New returns the object of a target. hide replaces what values may have gone
// into.
func New(es *esv1.ExternalSecret, target *offline.Target, hide bool) map[string]any {
	object := map[string]any{}
	maps.Copy(object, target.Content)

	if hide {
		object = concealed(object)
	}

	// Labels and annotations hold values only where a template puts them there.
	hideMetadata := hide && es.Spec.Target != nil && es.Spec.Target.Template != nil
	metadata := map[string]any{"name": target.Name}

	if es.Namespace != "" {
		metadata["namespace"] = es.Namespace
	}

	if len(target.Labels) > 0 {
		metadata["labels"] = texts(target.Labels, hideMetadata)
	}

	if len(target.Annotations) > 0 {
		metadata["annotations"] = texts(target.Annotations, hideMetadata)
	}

	if len(target.Finalizers) > 0 {
		metadata["finalizers"] = target.Finalizers
	}

	object["metadata"] = metadata

	if !target.IsSecret() {
		object["apiVersion"], object["kind"] = target.Manifest.ToAPIVersionAndKind()

		return object
	}

	object["apiVersion"], object["kind"] = "v1", offline.KindSecret

	switch {
	case target.Type != "":
		object["type"] = target.Type
	case target.Creates():
		object["type"] = opaque
	}

	if target.Immutable {
		object["immutable"] = true
	}

	data(object, target.Data, hide)

	return object
}

// data puts texts where they can be read, and everything else in base64.
func data(object map[string]any, values map[string][]byte, hide bool) {
	plain, encoded := map[string]any{}, map[string][]byte{}

	for key, value := range values {
		switch {
		case hide:
			plain[key] = hidden
		case readable(value):
			plain[key] = string(value)
		default:
			encoded[key] = value
		}
	}

	if len(plain) > 0 {
		object["stringData"] = plain
	}

	if len(encoded) > 0 {
		object["data"] = encoded
	}
}

func readable(value []byte) bool {
	if !utf8.Valid(value) {
		return false
	}

	for _, r := range string(value) {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return false
		}
	}

	return true
}

func texts(values map[string]string, hide bool) map[string]any {
	shown := make(map[string]any, len(values))

	for key, value := range values {
		if shown[key] = value; hide {
			shown[key] = hidden
		}
	}

	return shown
}

// concealed is a copy with every leaf hidden.
func concealed(fields map[string]any) map[string]any {
	shown := make(map[string]any, len(fields))
	for key, value := range fields {
		shown[key] = conceal(value)
	}

	return shown
}

func conceal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		return concealed(value)
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = conceal(value[i])
		}

		return list
	default:
		return hidden
	}
}

// YAML writes objects as documents.
func YAML(objects []map[string]any) ([]byte, error) {
	var out bytes.Buffer

	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("cannot write the object as YAML: %w", err)
		}

		if i > 0 {
			out.WriteString("---\n")
		}

		out.Write(text)
	}

	return out.Bytes(), nil
}

// JSON writes one object as it is, and several as a List.
func JSON(objects []map[string]any) ([]byte, error) {
	var all any = map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}

	switch len(objects) {
	case 0:
		return nil, nil
	case 1:
		all = objects[0]
	}

	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot write the object as JSON: %w", err)
	}

	return append(text, '\n'), nil
}
