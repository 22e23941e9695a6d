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

// Document is a secret as the backend holds it.
type Document struct {
	// Raw value. Properties and keys exist only where it is a JSON text.
	Raw []byte
	// Revision of the value, opaque; may be empty.
	Revision string
}

// Fetch reads one secret from the backend. An empty version is the latest.
type Fetch func(ctx context.Context, key, version string, metadata bool) (Document, error)

// maxFetches bounds the reads of one batch that are in flight.
const maxFetches = 8

// maxDepth bounds how deep a document may nest. The parser recurses: without a
// bound a value of some megabytes would overflow the stack, which no process
// survives.
const maxDepth = 1000

// source is what one Fetch reads.
type source struct {
	key, version string
	metadata     bool
}

// fetched is what became of it.
type fetched struct {
	document Document
	err      error
}

// Read answers a batch with one Fetch per key, version and metadata flag,
// however many properties of it are asked for, and several at a time.
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

// Exists tells whether fetch gives a secret, and whether it has the property
// where one is named. Only what is proven absent is not there.
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

// guarded keeps a panic in one read, which no server sees in this goroutine,
// from ending the process. Its text may hold what was read: type and place are
// told.
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

// place is where the present panic began.
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

// Answer answers one read out of a document.
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

// Select gives the whole value where property is empty, else what the property
// leads to: a key of that very name, or a path in the syntax of gjson, without
// its modifiers and multipaths. Strings come without quotes, null is empty, and
// anything else comes as it stands in the JSON text. The key of the secret is
// for error messages.
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

// Map gives the keys of a JSON object with their values: that which the
// property leads to, or the whole value.
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

		// A property may hold a JSON text as a string.
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

	// A key that holds a dot is meant before a path is.
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

// parse gives the JSON text, or says what is wrong with it.
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

// tooDeep counts brackets outside of strings. That they match is not its
// business.
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

// plain tells whether a path only leads to a part of the document. Modifiers
// and multipaths of gjson make something new of it, and may be chained so that
// each makes twice as much as the one before: a path of a few hundred bytes
// would take all memory. It refuses rather too much than too little: a quote
// that only a query understands is no hiding place.
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

// modifier tells whether a path begins with the name of a modifier.
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
