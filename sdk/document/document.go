package document

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// Document is a secret of the backend.
type Document struct {
	// Raw value. It has properties only if it is a JSON text.
	Raw []byte
	// Revision is the opaque revision of the value; may be empty.
	Revision string
}

// Fetch reads one secret from the backend. An empty version is the latest.
type Fetch func(ctx context.Context, key, version string, metadata bool) (Document, error)

// maxFetches bounds the concurrent fetches of one batch.
const maxFetches = 8

// maxDepth bounds the nesting of a document. The parser is recursive: without a
// bound a value of some megabytes would overflow the stack and crash the process.
const maxDepth = 1000

// source identifies one Fetch.
type source struct {
	key, version string
	metadata     bool
}

// fetched is its result.
type fetched struct {
	document Document
	err      error
}

// Read performs a batch of reads with one Fetch per key, version and metadata flag,
// however many properties are read. Several fetches run concurrently.
func Read(ctx context.Context, reads []provider.Read, fetch Fetch) []provider.Result {
	sources := map[source]*fetched{}
	for _, read := range reads {
		sources[source{read.Key, read.Version, read.Metadata}] = &fetched{}
	}

	var wait sync.WaitGroup

	free := make(chan struct{}, maxFetches)

	for from, into := range sources {
		free <- struct{}{}

		wait.Go(func() {
			defer func() { <-free }()

			into.document, into.err = guarded(ctx, from, fetch)
		})
	}

	wait.Wait()

	results := make([]provider.Result, len(reads))

	for i, read := range reads {
		got := sources[source{read.Key, read.Version, read.Metadata}]
		if got.err != nil {
			results[i] = provider.Result{Err: got.err}

			continue
		}

		results[i] = Answer(read, got.document)
	}

	return results
}

// Exists reports whether fetch returns a secret, and if the property is not empty
// whether the secret has it. It returns false only where that is proven.
func Exists(ctx context.Context, key, property string, fetch Fetch) (bool, error) {
	found, err := fetch(ctx, key, "", false)

	switch {
	case err != nil && provider.AsError(err).Code == codes.NotFound:
		return false, nil
	case err != nil:
		return false, err
	default:
		return property == "" || Has(found.Raw, property), nil
	}
}

// guarded calls fetch and converts a panic to an error: no interceptor sees this
// goroutine. The error has the panic's type and place, not its text, which may
// contain a value.
func guarded(ctx context.Context, from source, fetch Fetch) (d Document, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = &provider.Error{
				Code: codes.Internal, Reason: pb.ReasonInternal,
				Message: fmt.Sprintf("the provider has a defect: a read panicked with a %T at %s", panicked, place()),
			}
		}
	}()

	return fetch(ctx, from.key, from.version, from.metadata)
}

// place returns the file and line of the current panic.
func place() string {
	var counters [64]uintptr

	frames := runtime.CallersFrames(counters[:runtime.Callers(0, counters[:])])
	panicking := false

	for {
		frame, more := frames.Next()
		if panicking && !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}

		if !more {
			return "an unknown place"
		}

		panicking = panicking || frame.Function == "runtime.gopanic"
	}
}

// Answer returns the result of one read of a document.
func Answer(read provider.Read, d Document) provider.Result {
	if d.Revision != "" && d.Revision == read.KnownRevision {
		return provider.Result{NotModified: true, Revision: d.Revision}
	}

	result := provider.Result{Revision: d.Revision}

	switch read.Shape {
	case provider.Map:
		result.Map, result.Err = Map(read.Key, d.Raw, read.Property)
	case provider.Value:
		result.Value, result.Err = Select(read.Key, d.Raw, read.Property)
	}

	return result
}

// Select returns the whole value if property is empty, else the value of the
// property: the key of that exact name, or a path in the syntax of gjson, without
// its modifiers and multipaths. A string is returned without quotes, null as an
// empty value, and any other value as its JSON text. The key of the secret is for
// error messages.
func Select(key string, raw []byte, property string) ([]byte, error) {
	if property == "" {
		return raw, nil
	}

	found, err := lookup(key, raw, property)
	if err != nil {
		return nil, err
	}

	return text(found), nil
}

// Map returns the keys of a JSON object with their values: of the property's value,
// or of the whole value if property is empty.
func Map(key string, raw []byte, property string) (map[string][]byte, error) {
	var (
		object gjson.Result
		fault  string
	)

	if property == "" {
		if object, fault = parse(string(raw)); fault != "" {
			return nil, provider.InvalidRequest("cannot extract the keys of secret %q: its value %s", key, fault)
		}
	} else {
		var err error
		if object, err = lookup(key, raw, property); err != nil {
			return nil, err
		}

		// The value of a property may be a JSON text as a string.
		if object.Type == gjson.String {
			if object, fault = parse(object.Str); fault != "" {
				return nil, provider.InvalidRequest("cannot extract the keys of secret %q: its value%s %s", key, at(property), fault)
			}
		}
	}

	if !object.IsObject() {
		return nil, provider.InvalidRequest("cannot extract the keys of secret %q: its value%s is not a JSON object", key, at(property))
	}

	values := map[string][]byte{}

	object.ForEach(func(name, value gjson.Result) bool {
		values[name.String()] = text(value)

		return true
	})

	return values, nil
}

func lookup(key string, raw []byte, property string) (gjson.Result, error) {
	document, fault := parse(string(raw))
	if fault != "" {
		return document, provider.InvalidRequest("cannot read property %q of secret %q: its value %s", property, key, fault)
	}

	// A key with a dot in its name has precedence over a path.
	if document.IsObject() {
		var exact gjson.Result

		document.ForEach(func(name, value gjson.Result) bool {
			if name.String() == property {
				exact = value
			}

			return !exact.Exists()
		})

		if exact.Exists() {
			return exact, nil
		}
	}

	if !plain(property) {
		return document, provider.InvalidRequest("cannot read property %q of secret %q: modifiers and multipaths of gjson are not supported", property, key)
	}

	found := document.Get(property)
	if !found.Exists() {
		return found, provider.PropertyNotFound("secret %q has no property %q", key, property)
	}

	return found, nil
}

// parse parses a JSON text, or returns what is wrong with it.
func parse(raw string) (document gjson.Result, fault string) {
	switch {
	case tooDeep(raw):
		return document, fmt.Sprintf("nests deeper than %d", maxDepth)
	case !gjson.Valid(raw):
		return document, "is not JSON"
	default:
		return gjson.Parse(raw), ""
	}
}

// tooDeep counts brackets outside of strings. It does not check that they match.
func tooDeep(raw string) bool {
	depth, quoted := 0, false

	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}

	return false
}

// plain reports whether a path only selects a part of the document. Modifiers and
// multipaths of gjson construct new values, and can be chained so that each doubles
// the size of the one before: a path of a few hundred bytes could use all memory.
// Quotes, which have a meaning in queries only, are not treated as such, so that
// some paths are refused that would be harmless.
func plain(path string) bool {
	begins := true // A part of the path begins here.

	for i := range len(path) {
		switch c := path[i]; {
		case begins && (c == '[' || c == '{'), begins && c == '@' && modifier(path[i+1:]):
			return false
		case c == '.', c == '|', c == '(', c == '[':
			begins = true
		case c > ' ':
			begins = false
		}
	}

	return true
}

// modifier reports whether a path begins with the name of a modifier.
func modifier(path string) bool {
	end := strings.IndexFunc(path, func(c rune) bool { return c <= ' ' || strings.ContainsRune(".|:()[]=!<>%~", c) })
	if end < 0 {
		end = len(path)
	}

	return gjson.ModifierExists(path[:end], nil)
}

func text(value gjson.Result) []byte {
	switch value.Type {
	case gjson.String:
		return []byte(value.Str)
	case gjson.Null:
		return []byte{}
	default:
		return []byte(value.Raw)
	}
}

func at(property string) string {
	if property == "" {
		return ""
	}

	return " at property \"" + property + "\""
}
