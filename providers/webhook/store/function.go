package store

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"
)

// escapeFunction is added to each action in a URL. No template can call it.
const escapeFunction = "_escape"

// encoded is a text that is percent-encoded already.
type encoded string

// functions returns the functions of templates. None accesses the environment,
// files or the network. Those of the template language that return texts are
// replaced by ones with bounded results. No error contains a value.
func functions(most bound) template.FuncMap {
	return template.FuncMap{
		escapeFunction: most.escape,
		"urlquery":     percent,
		"path":         pathOf,
		"b64enc":       func(s string) (string, error) { return most.check(base64.StdEncoding.EncodeToString([]byte(s))) },
		"b64dec":       decode,
		"toJson":       most.quote,
		"quote":        most.quote,
		"trim":         strings.TrimSpace,
		"lower":        func(s string) (string, error) { return most.check(strings.ToLower(s)) },
		"upper":        func(s string) (string, error) { return most.check(strings.ToUpper(s)) },
		"trimPrefix":   func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"trimSuffix":   func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"replace":      most.replace,
		"default":      otherwise,
		"index":        entry,
		"print":        most.print,
		"printf":       most.printf,
	}
}

// allowed returns the functions that a template may call.
func allowed() []string {
	names := []string{"and", "eq", "ne", "not", "or"}

	for name := range functions(0) {
		if name != escapeFunction {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// bound is how many bytes a text may have.
type bound int

func (b bound) check(s string) (string, error) {
	if len(s) > int(b) {
		return "", b.exceeded()
	}

	return s, nil
}

func (b bound) exceeded() error { return fmt.Errorf("the text has more than %d bytes", int(b)) }

// percent encodes all characters with a meaning in a URL, including the slash.
func percent(s string) encoded {
	return encoded(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"))
}

// pathOf encodes the segments of a path, and not the slashes between them.
func pathOf(s string) encoded {
	parts := strings.Split(s, "/")
	for i, part := range parts {
		parts[i] = string(percent(part))
	}

	return encoded(strings.Join(parts, "/"))
}

func (b bound) escape(value any) (string, error) {
	switch value := value.(type) {
	case encoded:
		return b.check(string(value))
	case string:
		return b.check(string(percent(value)))
	case bool:
		return strconv.FormatBool(value), nil
	case int:
		return strconv.Itoa(value), nil
	default:
		return "", errors.New("only a text can stand in a URL")
	}
}

func decode(s string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return "", errors.New("the text is not base64")
	}

	return string(raw), nil
}

// quote returns a text as one of JSON, with its quotes.
func (b bound) quote(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("the text is not UTF-8, and JSON holds nothing else: use b64enc")
	}

	var made bytes.Buffer

	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(s); err != nil {
		return "", errors.New("the text cannot be written as JSON")
	}

	return b.check(strings.TrimSuffix(made.String(), "\n"))
}

func (b bound) replace(old, with, s string) (string, error) {
	if len(s)+strings.Count(s, old)*len(with) > int(b) {
		return "", b.exceeded()
	}

	return strings.ReplaceAll(s, old, with), nil
}

func otherwise(fallback, s string) string {
	if s == "" {
		return fallback
	}

	return s
}

// entry fails for a missing key, for which the template language returns nothing.
func entry(values map[string]string, key string) (string, error) {
	value, ok := values[key]
	if !ok {
		return "", errors.New("there is no such entry")
	}

	return value, nil
}

func (b bound) print(values ...any) (string, error) {
	if err := b.plain(values); err != nil {
		return "", err
	}

	return b.check(fmt.Sprint(values...))
}

// simpleVerbs are format verbs without a width, with which a result could have
// any length.
var simpleVerbs = regexp.MustCompile(`^([^%]|%[%dsvq])*$`)

func (b bound) printf(format string, values ...any) (string, error) {
	if !simpleVerbs.MatchString(format) {
		return "", errors.New("a format has %s, %d, %v, %q and %%, and no others")
	}

	if err := b.plain(values); err != nil {
		return "", err
	}

	return b.check(fmt.Sprintf(format, values...))
}

func (b bound) plain(values []any) error {
	size := 0

	for _, value := range values {
		switch value := value.(type) {
		case string:
			size += len(value)
		case encoded:
			size += len(value)
		case bool, int:
		default:
			return errors.New("only texts can be printed")
		}
	}

	if size > int(b) {
		return b.exceeded()
	}

	return nil
}
