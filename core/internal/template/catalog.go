package template

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// function is a function that templates may call.
type function struct {
	call any
	// bound returns how many bytes a call returns at most, or why it is refused.
	bound bound
	// shallow functions do not look into lists and dicts, and so need not be
	// kept from such as never end.
	shallow bool
	// cost of a result, if it is not the size of its outermost level.
	cost func(args []reflect.Value, result reflect.Value) int
	// why a call fails, if it does.
	why string
}

func (f *function) reason() string {
	if f.why != "" {
		return f.why
	}

	return "it cannot work with these arguments"
}

// catalog makes the functions that templates may call and this package watches
// over. What is not in the lists is not in it.
func catalog() map[string]*function {
	functions := map[string]*function{}
	theirs := sprig.TxtFuncMap()

	for _, name := range allowed() {
		functions[name] = &function{call: theirs[name]}
	}

	// Those of text/template that copy or format their arguments. The others
	// do not look into them.
	maps.Copy(functions, map[string]*function{
		"eq":       {call: equal, shallow: true},
		"ne":       {call: notEqual, shallow: true},
		"html":     {call: template.HTMLEscaper},
		"js":       {call: template.JSEscaper},
		"print":    {call: fmt.Sprint},
		"printf":   {call: fmt.Sprintf},
		"println":  {call: fmt.Sprintln},
		"urlquery": {call: template.URLQueryEscaper},
	})

	for name, call := range ownCalls() {
		functions[name] = &function{call: call}
	}

	for name, call := range replacements(theirs) {
		functions[name].call = call
	}

	for name, b := range bounds() {
		functions[name].bound = b
	}

	for name, why := range reasons() {
		functions[name].why = why
	}

	for _, name := range shallow() {
		functions[name].shallow = true
	}

	for _, name := range sharing() {
		functions[name].cost = free
	}

	for _, name := range deep() {
		functions[name].cost = whole
	}

	for _, name := range []string{"set"} {
		functions[name].cost = entry
	}

	return functions
}

func ownCalls() map[string]any {
	return map[string]any{
		"pkcs12key":                 pkcs12Key,
		"pkcs12keyPass":             pkcs12KeyPass,
		"pkcs12cert":                pkcs12Cert,
		"pkcs12certPass":            pkcs12CertPass,
		"pemToPkcs12":               pemToPKCS12,
		"pemToPkcs12Pass":           pemToPKCS12Pass,
		"fullPemToPkcs12":           fullPEMToPKCS12,
		"fullPemToPkcs12Pass":       fullPEMToPKCS12Pass,
		"pemTruststoreToPKCS12":     pemTruststoreToPKCS12,
		"pemTruststoreToPKCS12Pass": pemTruststoreToPKCS12Pass,
		"filterPEM":                 filterPEM,
		"filterCertChain":           filterCertChain,
		"certSANs":                  certSANs,
		"jwkPublicKeyPem":           jwkPublicKeyPEM,
		"jwkPrivateKeyPem":          jwkPrivateKeyPEM,
		"toYaml":                    toYAML,
		"fromYaml":                  fromYAML,
		"rsaDecrypt":                rsaDecrypt,
		"hexdec":                    hexDecode,
	}
}

// replacements of functions of sprig. Its own give the text of an error for a
// value, the order of a map that changes each time, or a message that a value
// can be written into.
func replacements(theirs template.FuncMap) map[string]any {
	replaced := map[string]any{
		"b32dec": base32Decode,
		"b64dec": base64Decode,
		"fail":   refuse,
		"keys":   keys,
		"values": values,
	}

	merge, _ := theirs["mustMerge"].(merger)
	overwrite, _ := theirs["mustMergeOverwrite"].(merger)
	duplicate, _ := theirs["mustDeepCopy"].(func(any) (any, error))

	for name, call := range map[string]merger{
		"merge": merge, "mustMerge": merge, "mergeOverwrite": overwrite, "mustMergeOverwrite": overwrite,
	} {
		replaced[name] = ofCopies(call, duplicate)
	}

	return replaced
}

type merger = func(map[string]any, ...map[string]any) (any, error)

// ofCopies merges copies into a dict. Merging dicts that share a part can make
// that part hold itself while it is being walked, and the walk has no end.
func ofCopies(merge merger, duplicate func(any) (any, error)) merger {
	return func(to map[string]any, from ...map[string]any) (any, error) {
		for _, dict := range from {
			copied, err := duplicate(dict)
			if err != nil {
				return nil, err
			}

			source, ok := copied.(map[string]any)
			if !ok {
				continue
			}

			if _, err := merge(to, source); err != nil {
				return nil, err
			}
		}

		return to, nil
	}
}

func base64Decode(text string) (string, error) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", fail("the value is not base64")
	}

	return string(decoded), nil
}

func base32Decode(text string) (string, error) {
	decoded, err := base32.StdEncoding.DecodeString(text)
	if err != nil {
		return "", fail("the value is not base32")
	}

	return string(decoded), nil
}

func hexDecode(text string) (string, error) {
	decoded, err := hex.DecodeString(text)
	if err != nil {
		return "", fail("the value is not hexadecimal")
	}

	return string(decoded), nil
}

func refuse(string) (string, error) {
	return "", fail("the template gave up here; its message may hold a value, and is not shown")
}

func keys(dicts ...map[string]any) []string {
	all := []string{}
	for _, dict := range dicts {
		all = append(all, slices.Sorted(maps.Keys(dict))...)
	}

	return all
}

func values(dict map[string]any) []any {
	all := []any{}
	for _, key := range keys(dict) {
		all = append(all, dict[key])
	}

	return all
}

// shallow functions. Each was looked at: it neither formats, copies, compares
// nor walks what its lists and dicts hold.
func shallow() []string {
	return []string{
		"all", "any", "append", "chunk", "coalesce", "compact", "concat", "default", "dict", "dig", "empty",
		"first", "get", "hasKey", "initial", "keys", "kindIs", "kindOf", "last", "list", "mustAppend", "mustChunk",
		"mustCompact", "mustFirst", "mustInitial", "mustLast", "mustPrepend", "mustPush", "mustRest", "mustReverse",
		"mustSlice", "omit", "pick", "pluck", "prepend", "push", "rest", "reverse", "slice", "ternary", "tuple",
		"typeIs", "typeIsLike", "typeOf", "unset", "values",
	}
}

// sharing functions give back what they were given, or a part of it.
func sharing() []string {
	return []string{
		"base", "coalesce", "default", "dig", "ext", "first", "get", "last", "mustFirst", "mustLast", "mustSlice", "slice",
		"substr", "ternary", "trim", "trimAll", "trimPrefix", "trimSuffix", "trimall", "trunc", "unset",
	}
}

// deep functions create everything in their result.
func deep() []string {
	return []string{
		"deepCopy", "fromJson", "fromYaml", "merge", "mergeOverwrite", "mustDeepCopy", "mustFromJson", "mustMerge",
		"mustMergeOverwrite",
	}
}

func free([]reflect.Value, reflect.Value) int { return 0 }

func whole(_ []reflect.Value, result reflect.Value) int { return size(result) }

// entry is what one more entry of a dict costs.
func entry(args []reflect.Value, _ reflect.Value) int { return 4*perValue + args[1].Len() }

// reasons of the functions whose failure has one likely cause. All others
// cannot work with their arguments.
func reasons() map[string]string {
	all := map[string]string{
		"buildCustomCert": "it takes a certificate and a private key, each PEM in base64",
		"decryptAES":      "the value cannot be decrypted with this password",
		"mustDateModify":  "it takes a duration such as -1.5h",
		"mustFromJson":    "the value is not JSON",
		"mustToDate":      "the value is not a date of this layout",
		"randInt":         "the first number must be smaller than the second",
		"semver":          "the value is not a semantic version",
		"semverCompare":   "it takes a constraint and a semantic version",
		"urlParse":        "the value is not a URL",
	}
	all["must_date_modify"] = all["mustDateModify"]

	for _, name := range []string{"genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey"} {
		all[name] = "the names, or the given key or certificate, are not valid"
	}

	return all
}
