package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// rewrite changes the keys of an entry, one step after the other.
func (r *Renderer) rewrite(entry plan.Entry, values map[string][]byte) (map[string][]byte, error) {
	values = maps.Clone(values)
	if values == nil {
		values = map[string][]byte{}
	}

	for i, step := range entry.Rewrite {
		var err error

		switch {
		case step.Merge != nil:
			values, err = merge(step.Merge, values)
		case step.Regexp != nil:
			values, err = replace(step.Regexp, values)
		case step.Transform != nil:
			values, err = r.transform(step.Transform, values)
		}

		if err != nil {
			return nil, fmt.Errorf("%s: rewrite[%d]: %w", entry.Field, i, err)
		}
	}

	return values, nil
}

// rename gives every key a new name. Two that get the same are an error: which
// of their values is meant?
func rename(values map[string][]byte, name func(key string) (string, error)) (map[string][]byte, error) {
	renamed := make(map[string][]byte, len(values))
	origin := make(map[string]string, len(values))

	for _, key := range slices.Sorted(maps.Keys(values)) {
		to, err := name(key)
		if err != nil {
			return nil, err
		}

		// An empty key is left out in the end.
		if former, taken := origin[to]; taken && to != "" {
			return nil, fmt.Errorf("the keys %q and %q both become %q", former, key, to)
		}

		origin[to] = key
		renamed[to] = values[key]
	}

	return renamed, nil
}

func replace(step *esv1.RewriteRegexp, values map[string][]byte) (map[string][]byte, error) {
	source, err := regexp.Compile(step.Source)
	if err != nil {
		return nil, fmt.Errorf("regexp.source: %w", err)
	}

	return rename(values, func(key string) (string, error) { return source.ReplaceAllString(key, step.Target), nil })
}

func (r *Renderer) transform(step *esv1.RewriteTransform, values map[string][]byte) (map[string][]byte, error) {
	return rename(values, func(key string) (string, error) {
		to, err := r.transforms.Render("transform", step.Template, map[string]string{"value": key})
		if err != nil {
			return "", fmt.Errorf("the key %q: %w", key, err)
		}

		return string(to), nil
	})
}

// merge merges the JSON objects that the values are.
func merge(step *esv1.RewriteMerge, values map[string][]byte) (map[string][]byte, error) {
	objects := make(map[string]map[string]any, len(values))

	for key, value := range values {
		object, err := parseObject(value)
		if err != nil {
			return nil, fmt.Errorf("merge: the value of key %q is no JSON object", key)
		}

		objects[key] = object
	}

	order, err := mergeOrder(step, objects)
	if err != nil {
		return nil, err
	}

	if step.ConflictPolicy != esv1.MergeConflictIgnore {
		if err := conflicts(step, objects); err != nil {
			return nil, err
		}
	}

	merged := map[string]any{}
	for _, key := range order {
		maps.Copy(merged, objects[key])
	}

	if step.Strategy == esv1.MergeJSON {
		var text bytes.Buffer

		// As upstream does: <, > and & stay as they are.
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)

		if err := encoder.Encode(merged); err != nil {
			return nil, errors.New("merge: the merged object cannot be written as JSON")
		}

		values[step.Into] = bytes.TrimSuffix(text.Bytes(), []byte("\n"))

		return values, nil
	}

	extracted := make(map[string][]byte, len(merged))

	for field, value := range merged {
		text, err := textOf(value)
		if err != nil {
			return nil, fmt.Errorf("merge: the value of field %q cannot be written as JSON", field)
		}

		extracted[field] = text
	}

	return extracted, nil
}

// parseObject reads one JSON object, numbers as they are written.
func parseObject(value []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()

	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}

	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || object == nil {
		return nil, errors.New("more than one object, or null")
	}

	return object, nil
}

// mergeOrder is the order in which objects are merged: a later one wins. Those
// of priority come last.
func mergeOrder(step *esv1.RewriteMerge, objects map[string]map[string]any) ([]string, error) {
	order := slices.DeleteFunc(slices.Sorted(maps.Keys(objects)), func(key string) bool { return slices.Contains(step.Priority, key) })

	for _, key := range step.Priority {
		if _, ok := objects[key]; ok {
			order = append(order, key)

			continue
		}

		if step.PriorityPolicy != esv1.MergePriorityIgnoreNotFound {
			return nil, fmt.Errorf("merge: priority names the key %q, which was not found; priorityPolicy IgnoreNotFound leaves it out", key)
		}
	}

	return order, nil
}

// conflicts refuses a field that two objects have where priority does not
// decide between them.
func conflicts(step *esv1.RewriteMerge, objects map[string]map[string]any) error {
	decided := map[string]bool{}

	for _, key := range step.Priority {
		for field := range objects[key] {
			decided[field] = true
		}
	}

	var (
		found []string
		owner = map[string]string{}
	)

	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if slices.Contains(step.Priority, key) {
			continue
		}

		for _, field := range slices.Sorted(maps.Keys(objects[key])) {
			if former, taken := owner[field]; taken && !decided[field] {
				found = append(found, fmt.Sprintf("%q (in %q and %q)", field, former, key))
			}

			owner[field] = key
		}
	}

	const shown = 5

	switch {
	case len(found) == 0:
		return nil
	case len(found) > shown:
		found = append(found[:shown], fmt.Sprintf("and %d more", len(found)-shown))
	}

	return fmt.Errorf("merge: several objects have the field %s; name one in priority, or set conflictPolicy Ignore", strings.Join(found, ", "))
}

// textOf writes a JSON value as a Secret holds it: strings as they are, null as
// nothing, numbers without exponent, everything else as JSON.
func textOf(value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return []byte{}, nil
	case string:
		return []byte(value), nil
	case json.Number:
		return plainNumber(value), nil
	default:
		return json.Marshal(value)
	}
}

func plainNumber(number json.Number) []byte {
	if !strings.ContainsAny(number.String(), "eE") {
		return []byte(number.String())
	}

	float, err := number.Float64()
	if err != nil {
		return []byte(number.String())
	}

	return strconv.AppendFloat(nil, float, 'f', -1, 64)
}
