package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// kindConfigMap keeps its data where a Secret does; other kinds have it below
// spec.
const kindConfigMap = "ConfigMap"

// path of an entry of templateFrom into a target that is no Secret; nil where
// the entry names Data, Labels or Annotations.
func (s *scope) path(from *esv1.TemplateFrom) []plan.Step {
	switch strings.ToLower(from.Target) {
	case "", "data", "labels", "annotations":
		return nil
	}

	steps, err := plan.ParsePath(from.Target)
	if err != nil || s.target.IsSecret() {
		return nil // refused by the plan
	}

	return steps
}

// graft reads rendered YAML and puts it into the target, maps merged.
func (s *scope) graft(name string, path []plan.Step, rendered []byte) error {
	var value any

	if err := yaml.Unmarshal(rendered, &value); err != nil {
		where := yamlLine.FindString(err.Error())
		if where != "" {
			where = " (" + where + " of what it renders to)"
		}

		return fmt.Errorf("%s: it does not render to YAML%s", name, where)
	}

	// A value that JSON cannot express, such as a map whose keys are numbers, is
	// not part of any object.
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: what it renders to cannot be written as JSON", name)
	}

	if value, err = parseValue(text); err != nil {
		return fmt.Errorf("%s: what it renders to cannot be read as JSON", name)
	}

	if err := put(s.target, path, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	return nil
}

// parseValue reads JSON as the API's own objects are read: whole numbers are
// int64.
func parseValue(text []byte) (any, error) {
	var holder map[string]any
	if err := utiljson.Unmarshal(append(append([]byte(`{"v":`), text...), '}'), &holder); err != nil {
		return nil, err
	}

	return holder["v"], nil
}

// put puts a value where a path leads. A map is merged into one that is there.
func put(target *Target, path []plan.Step, value any) error {
	if target.Content == nil {
		target.Content = map[string]any{}
	}

	content, err := with(target.Content, path, value)
	if err != nil {
		return err
	}

	target.Content, _ = content.(map[string]any)

	return nil
}

// with gives a value in which the value that a path leads to is another.
func with(within any, path []plan.Step, value any) (any, error) {
	if len(path) == 0 {
		return merged(within, value), nil
	}

	step := path[0]

	if step.Index >= 0 {
		list, ok := within.([]any)
		if within != nil && !ok {
			return nil, errors.New("the path has an index where the object has no list")
		}

		for len(list) <= step.Index {
			list = append(list, nil)
		}

		var err error

		list[step.Index], err = with(list[step.Index], path[1:], value)

		return list, err
	}

	fields, ok := within.(map[string]any)
	if within != nil && !ok {
		return nil, fmt.Errorf("the path has the field %q where the object has none", step.Field)
	}

	if fields == nil {
		fields = map[string]any{}
	}

	var err error

	fields[step.Field], err = with(fields[step.Field], path[1:], value)

	return fields, err
}

func merged(into, value any) any {
	base, ok := into.(map[string]any)
	over, also := value.(map[string]any)

	if !ok || !also {
		return value
	}

	base = maps.Clone(base)
	for key, field := range over {
		base[key] = merged(base[key], field)
	}

	return base
}

// place puts the data where the target's kind has it. A target whose templates
// have filled other fields needs none.
func place(target *Target) error {
	data := make(map[string]any, len(target.Data))

	for _, key := range slices.Sorted(maps.Keys(target.Data)) {
		if !utf8.Valid(target.Data[key]) {
			return fmt.Errorf("the value of key %q is no text: a %s holds texts only", key, target.Manifest.Kind)
		}

		data[key] = string(target.Data[key])
	}

	if len(data) == 0 && target.Content != nil {
		return nil
	}

	path := []plan.Step{{Field: "spec", Index: -1}, {Field: "data", Index: -1}}
	if target.Manifest.Kind == kindConfigMap && target.Manifest.Group == "" {
		path = path[1:]
		path[0].Field = "data"
	}

	return put(target, path, data)
}
