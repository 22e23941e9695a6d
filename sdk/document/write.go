package document

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/external-secrets/eso/sdk/provider"
)

// Set returns the document with a property set to a value, as a string. It writes
// where Select finds the property: the key of that exact name, or the end of an
// existing path of keys. If neither exists it adds the key. The rest of the text is
// not changed. An empty document is an empty object. The key of the secret is for
// error messages.
func Set(key string, raw []byte, property string, value []byte) ([]byte, error) {
	if !utf8.Valid(value) {
		return nil, provider.InvalidRequest("cannot write property %q of secret %q: the value is not UTF-8, and JSON holds nothing else", property, key)
	}

	text, err := object("write", key, raw, property)
	if err != nil {
		return nil, err
	}

	path, _ := locate(text, property)

	made, err := sjson.Set(text, path, string(value))
	if err != nil {
		return nil, provider.InvalidRequest("cannot write property %q of secret %q: it is no name of a property", property, key)
	}

	return []byte(made), nil
}

// Holds reports whether the value of the property is the string, so that Set would
// change nothing.
func Holds(raw []byte, property string, value []byte) bool {
	text, err := object("read", "", raw, property)
	if err != nil {
		return false
	}

	path, there := locate(text, property)
	if !there {
		return false
	}

	found := gjson.Get(text, path)

	return found.Type == gjson.String && found.Str == string(value)
}

// Has reports whether the document has the property, of any type. A document that is
// not a JSON object has none.
func Has(raw []byte, property string) bool {
	text, err := object("read", "", raw, property)
	if err != nil {
		return false
	}

	_, there := locate(text, property)

	return there
}

// Remove returns the document without a property, and reports whether it has any
// other property. A property that does not exist is no error.
func Remove(key string, raw []byte, property string) (document []byte, left bool, err error) {
	text, err := object("delete", key, raw, property)
	if err != nil {
		return nil, false, err
	}

	if path, there := locate(text, property); there && path == escape(property) {
		text = without(text, property)
	} else if there {
		if text, err = sjson.Delete(text, path); err != nil {
			return nil, false, provider.InvalidRequest("cannot delete property %q of secret %q: it is no name of a property", property, key)
		}
	}

	gjson.Parse(text).ForEach(func(gjson.Result, gjson.Result) bool {
		left = true

		return false
	})

	return []byte(text), left, nil
}

// without returns an object without a key, and the rest unchanged. sjson would cut
// in the wrong place if the name contains a quote.
func without(text, key string) string {
	var rest strings.Builder

	rest.WriteByte('{')

	gjson.Parse(text).ForEach(func(name, value gjson.Result) bool {
		if name.String() == key {
			return true
		}

		if rest.Len() > 1 {
			rest.WriteByte(',')
		}

		rest.WriteString(name.Raw + ":" + value.Raw)

		return true
	})

	rest.WriteByte('}')

	return rest.String()
}

// Equal reports whether two texts are the same JSON value, or the same bytes.
func Equal(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}

	canonicalA, okA := canonical(a)
	canonicalB, okB := canonical(b)

	return okA && okB && canonicalA == canonicalB
}

// canonical returns a JSON value with sorted keys and without spaces.
func canonical(raw []byte) (string, bool) {
	if tooDeep(string(raw)) {
		return "", false
	}

	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()

	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return "", false
	}

	text, err := json.Marshal(value)

	return string(text), err == nil
}

// object returns a document that properties can be written to.
func object(what, key string, raw []byte, property string) (string, error) {
	if len(raw) == 0 {
		return "{}", nil
	}

	document, fault := parse(string(raw))
	if fault == "" && !document.IsObject() {
		fault = "is no JSON object"
	}

	if fault != "" {
		return "", provider.InvalidRequest("cannot %s property %q of secret %q: its value %s", what, property, key, fault)
	}

	return document.Raw, nil
}

// locate returns the path of a property, and whether it is there.
func locate(text, property string) (path string, there bool) {
	literal := escape(property)
	if gjson.Get(text, literal).Exists() {
		return literal, true
	}

	if !strings.ContainsAny(property, `*?|#@!{}[]()=<>\:`) && gjson.Get(text, property).Exists() {
		return property, true
	}

	return literal, false
}

// escape returns the path that selects a key of exactly this name.
func escape(key string) string {
	var path strings.Builder

	for i := range len(key) {
		if c := key[i]; strings.IndexByte(`.*?|#@!{}[]()=<>\:"%~,&$^`+"`", c) >= 0 {
			path.WriteByte('\\')
		}

		path.WriteByte(key[i])
	}

	return path.String()
}

// Encode returns a value as a JSON text, in which <, > and & are not escaped, as
// backends write it.
func Encode(value any) ([]byte, error) {
	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(value); err != nil {
		return nil, err
	}

	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
