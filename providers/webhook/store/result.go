package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ohler55/ojg/jp"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	resultField = "spec.result.jsonPath"
	// maxDepth bounds the nesting of a response in which a path is searched: each
	// level is visited once more.
	maxDepth = 100
)

// result selects the secret in a response that is JSON.
type result struct {
	text *text
	// path is parsed once if it contains no value.
	path jp.Expr
}

// parseResult parses the path; nil means that the response is the secret.
func parseResult(source string) (*result, error) {
	if strings.TrimSpace(source) == "" {
		return nil, nil
	}

	t, err := parseText(resultField, source, vocabulary{nameRemoteRef: {nameKey, nameProperty, nameRemoteKey, nameVersion}}, maxText, false)
	if err != nil {
		return nil, err
	}

	r := &result{text: t}
	if literal, ok := t.literal(); ok {
		if r.path, err = parsePath(literal); err != nil {
			return nil, provider.InvalidConfig("%s: %v", resultField, err)
		}
	}

	return r, nil
}

// uses reports whether the path contains a value.
func (r *result) uses(name string) bool { return r != nil && r.text.uses[name] }

// find returns the value at the path: a string as its text, null as an empty
// value, and any other value as its JSON text.
func (r *result) find(wanted values, raw []byte, data map[string]any) ([]byte, error) {
	if r == nil {
		return raw, nil
	}

	path := r.path
	if path == nil {
		source, err := r.text.render(data)
		if err != nil {
			return nil, err
		}

		if path, err = parsePath(source); err != nil {
			return nil, provider.InvalidRequest("cannot read secret %q: %s: %v", wanted.key, resultField, err)
		}
	}

	tree, err := decodeOrdered(raw)
	if err != nil {
		return nil, provider.InvalidRequest("cannot read secret %q: %s is set, and the answer %v", wanted.key, resultField, err)
	}

	found, ok, err := search(path, tree)
	if err != nil {
		return nil, provider.InvalidRequest("cannot read secret %q: %s: %v", wanted.key, resultField, err)
	}

	if !ok {
		return nil, r.absent(wanted, path, tree)
	}

	part, err := follow(raw, found)
	if err != nil {
		return nil, provider.InvalidRequest("cannot read secret %q: %s leads to nothing in the answer", wanted.key, resultField)
	}

	return unquoted(part), nil
}

// absent returns the error of a path without a match. Only a part that searches
// an existing object or list proves that the secret does not exist; anything else
// that is missing is an error in the path, or a change of the API.
func (r *result) absent(wanted values, path jp.Expr, tree any) error {
	at := len(path) - 1

	for n := 1; n < len(path); n++ {
		if _, ok := first(path[:n], tree, nil); !ok {
			at = n - 1

			break
		}
	}

	parent, _ := first(path[:at], tree, nil)

	switch {
	case !r.looked(wanted, path, at, nodeAt(tree, parent)):
		return provider.InvalidRequest("cannot read secret %q: %s leads to nothing in the answer", wanted.key, resultField)
	case r.uses(nameProperty):
		return provider.PropertyNotFound("secret %q has no such property: %s leads to nothing in the answer", wanted.key, resultField)
	default:
		return provider.NotFound("secret %q does not exist: %s leads to nothing in the answer", wanted.key, resultField)
	}
}

// looked reports whether a part of a path has searched a node.
func (r *result) looked(wanted values, path jp.Expr, at int, node any) bool {
	object, _ := node.(*ordered)
	list, _ := node.([]any)

	switch part := path[at].(type) {
	case jp.Nth:
		return list != nil
	case jp.Wildcard, *jp.Filter:
		return list != nil || object != nil
	case jp.Child:
		if at > 0 {
			if _, anywhere := path[at-1].(jp.Descent); anywhere {
				return list != nil || object != nil
			}
		}

		for _, value := range []string{wanted.key, wanted.property, wanted.version} {
			if value != "" && r.path == nil && strings.Contains(string(part), value) {
				return object != nil
			}
		}
	}

	return false
}

// nodeAt returns the node that names and indexes lead to.
func nodeAt(node any, at jp.Expr) any {
	for _, part := range at {
		node, _ = childOf(node, part)
	}

	return node
}

// searches reports whether a path contains a search, which may have no match.
func searches(path jp.Expr) bool {
	for _, part := range path {
		switch part.(type) {
		case jp.Child, jp.Nth, jp.Root, jp.At, jp.Bracket:
		default:
			return true
		}
	}

	return false
}

// parsePath parses a path, and refuses one that could visit parts of the response
// more than once.
func parsePath(source string) (jp.Expr, error) {
	source = strings.TrimSpace(source)
	if source == "" {
		return nil, errors.New("the path is empty")
	}

	path, err := jp.ParseString(source)
	if err != nil {
		// The library quotes the path, and a key may stand in it.
		return nil, errors.New("it is no JSONPath, such as $.data.value")
	}

	descents := 0

	for _, part := range path {
		switch part := part.(type) {
		case jp.Child, jp.Nth, jp.Root, jp.At, jp.Bracket, jp.Wildcard:
		case jp.Descent:
			if descents++; descents > 1 {
				return nil, errors.New("a path has .. once at most")
			}
		case *jp.Filter:
			if err := plainFilter(part); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New("a path has names, indexes, *, one .. and filters; slices, and lists of names or indexes, are not supported")
		}
	}

	return path, nil
}

// plainFilter checks a filter. The library panics for a filter that is a path
// only, as in [?(@.a)]: its text is checked instead.
func plainFilter(filter *jp.Filter) (err error) {
	defer func() {
		if recover() == nil {
			return
		}

		if text := filter.String(); strings.ContainsAny(text, "*$") || strings.Contains(text, "..") || strings.Count(text, "?") > 1 {
			err = errFilterPath
		}
	}()

	return plainForm(filter.Inspect())
}

// errFilterPath is the error of a path in a filter that is not supported.
var errFilterPath = errors.New("paths in a filter begin with @, and have names and indexes only")

// plainForm refuses a filter that visits the whole response for each part of it.
func plainForm(form *jp.Form) error {
	for _, side := range []any{form.Left, form.Right} {
		switch side := side.(type) {
		case *jp.Form:
			if side == nil {
				continue
			}

			if err := plainForm(side); err != nil {
				return err
			}
		case jp.Expr:
			if len(side) == 0 {
				continue
			}

			if _, root := side[0].(jp.Root); root || searches(side) {
				return errFilterPath
			}
		case nil, string, bool, int64, int, float64, *regexp.Regexp, []any:
		default:
			return fmt.Errorf("a filter cannot hold a %T", side)
		}
	}

	return nil
}

// search returns the first match of a path. The library panics for values that it
// cannot compare.
func search(path jp.Expr, tree any) (found jp.Expr, ok bool, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a filter cannot be applied to the answer")
		}
	}()

	found, ok = first(path, tree, nil)

	return found, ok, nil
}

// first returns the names and indexes of the first match of a path, in the order
// of the text. The library itself finds matches in any order.
func first(path jp.Expr, node any, at jp.Expr) (jp.Expr, bool) {
	if len(path) == 0 {
		return at, true
	}

	rest := path[1:]

	switch part := path[0].(type) {
	case jp.Child, jp.Nth:
		child, ok := childOf(node, part)
		if !ok {
			return nil, false
		}

		return first(rest, child, append(at, part))
	case jp.Wildcard:
		return each(node, at, func(child any, at jp.Expr) (jp.Expr, bool) { return first(rest, child, at) })
	case *jp.Filter:
		return each(node, at, func(child any, at jp.Expr) (jp.Expr, bool) {
			if !part.Match(child) {
				return nil, false
			}

			return first(rest, child, at)
		})
	case jp.Descent:
		if found, ok := first(rest, node, at); ok {
			return found, true
		}

		return each(node, at, func(child any, at jp.Expr) (jp.Expr, bool) { return first(path, child, at) })
	default:
		return first(rest, node, at)
	}
}

// childOf returns the child at a name or an index, which counts from the end
// where it is negative.
func childOf(node any, part jp.Frag) (child any, ok bool) {
	switch part := part.(type) {
	case jp.Child:
		if object, is := node.(*ordered); is {
			child, ok = object.values[string(part)]
		}
	case jp.Nth:
		list, _ := node.([]any)

		i := int(part)
		if i < 0 {
			i += len(list)
		}

		if ok = i >= 0 && i < len(list); ok {
			child = list[i]
		}
	}

	return child, ok
}

// each visits the children of a node in order, until one matches.
func each(node any, at jp.Expr, try func(child any, at jp.Expr) (jp.Expr, bool)) (jp.Expr, bool) {
	switch node := node.(type) {
	case *ordered:
		for _, key := range node.keys {
			if found, ok := try(node.values[key], append(at, jp.Child(key))); ok {
				return found, true
			}
		}
	case []any:
		for i, child := range node {
			if found, ok := try(child, append(at, jp.Nth(i))); ok {
				return found, true
			}
		}
	}

	return nil, false
}

// ordered is a JSON object whose keys are in the order of the text, so that the
// first match is always the same.
type ordered struct {
	keys   []string
	values map[string]any
}

var _ jp.Keyed = (*ordered)(nil)

// ValueForKey returns the value of a key.
func (o *ordered) ValueForKey(key string) (any, bool) {
	value, ok := o.values[key]

	return value, ok
}

// SetValueForKey sets the value of a key.
func (o *ordered) SetValueForKey(key string, value any) {
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}

	o.values[key] = value
}

// RemoveValueForKey removes a key.
func (o *ordered) RemoveValueForKey(key string) { delete(o.values, key) }

// Keys returns the keys in order.
func (o *ordered) Keys() []string { return o.keys }

// decodeOrdered reads JSON.
func decodeOrdered(raw []byte) (any, error) {
	if !json.Valid(raw) {
		return nil, errors.New("is not JSON")
	}

	return value(json.NewDecoder(bytes.NewReader(raw)), 0)
}

func value(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nests deeper than %d", maxDepth)
	}

	token, err := decoder.Token()
	if err != nil {
		return nil, errors.New("is not JSON")
	}

	switch token {
	case json.Delim('{'):
		object := &ordered{values: map[string]any{}}

		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, errors.New("is not JSON")
			}

			of, err := value(decoder, depth+1)
			if err != nil {
				return nil, err
			}

			text, _ := name.(string)
			object.SetValueForKey(text, of)
		}

		_, err = decoder.Token()

		return object, err
	case json.Delim('['):
		list := []any{}

		for decoder.More() {
			element, err := value(decoder, depth+1)
			if err != nil {
				return nil, err
			}

			list = append(list, element)
		}

		_, err = decoder.Token()

		return list, err
	default:
		return token, nil
	}
}

// follow returns the JSON text at a path of names and indexes. The decoded tree
// does not have the original spelling of numbers.
func follow(raw []byte, path jp.Expr) ([]byte, error) {
	for _, part := range path {
		switch part := part.(type) {
		case jp.Child:
			var object map[string]json.RawMessage
			if err := json.Unmarshal(raw, &object); err != nil {
				return nil, err
			}

			raw = object[string(part)]
		case jp.Nth:
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, err
			}

			at := int(part)
			if at < 0 {
				at += len(list)
			}

			if at < 0 || at >= len(list) {
				return nil, errors.New("no such index")
			}

			raw = list[at]
		}
	}

	return raw, nil
}

func unquoted(raw []byte) []byte {
	raw = bytes.TrimSpace(raw)

	var text *string
	if err := json.Unmarshal(raw, &text); err != nil {
		return raw
	}

	if text == nil {
		return []byte{}
	}

	return []byte(*text)
}
