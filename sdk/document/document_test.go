package document

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failure is what a caller decides by.
type failure struct {
	Code   codes.Code
	Reason string
}

var (
	noProperty     = failure{codes.NotFound, pb.ReasonPropertyNotFound}
	invalidRequest = failure{codes.InvalidArgument, pb.ReasonInvalidRequest}
)

func failureOf(err error) failure {
	if err == nil {
		return failure{}
	}

	typed := provider.AsError(err)

	return failure{typed.Code, typed.Reason}
}

func TestSelect(t *testing.T) {
	for _, test := range []struct {
		name, why     string
		raw, property string
		want          string
		failure       failure
	}{
		{
			name: "whole", why: "without a property the bytes come as they are, JSON or not",
			raw: "\x00\xff not JSON", want: "\x00\xff not JSON",
		},
		{
			name: "whole JSON", why: "white space and key order of a document belong to its author",
			raw: `{ "b":1,"a":2 }`, want: `{ "b":1,"a":2 }`,
		},
		{
			name: "exact key before path", why: "users name keys like tls.crt, and mean the key",
			raw: `{"tls":{"crt":"path"},"tls.crt":"exact"}`, property: "tls.crt", want: "exact",
		},
		{
			name: "exact key of null before path", why: "a key that is there wins, whatever it holds",
			raw: `{"tls":{"crt":"path"},"tls.crt":null}`, property: "tls.crt", want: "",
		},
		{
			name: "exact key with an escape", why: "JSON may write a key in another way than the user does",
			raw: `{"a\u002fb":"slash"}`, property: "a/b", want: "slash",
		},
		{
			name: "exact key that looks like a wildcard", why: "the key itself is meant before what it matches",
			raw: `{"ab":"matched","a*":"exact"}`, property: "a*", want: "exact",
		},
		{
			name: "exact key that looks like a modifier", why: "JSON-LD names keys like this",
			raw: `{"@this":"exact"}`, property: "@this", want: "exact",
		},
		{
			name: "exact key that looks like a multipath", why: "only paths are restricted, keys may have any name",
			raw: `{"[a]":"exact"}`, property: "[a]", want: "exact",
		},
		{
			name: "nested", why: "a path leads through objects",
			raw: `{"a":{"b":{"c":"deep"}}}`, property: "a.b.c", want: "deep",
		},
		{
			name: "escaped dot", why: "a nested key with a dot is reached by escaping it",
			raw: `{"a":{"b.c":"dotted"}}`, property: `a.b\.c`, want: "dotted",
		},
		{
			name: "array element", why: "a number is an index",
			raw: `{"a":["zero","one"]}`, property: "a.1", want: "one",
		},
		{
			name: "array at the top", why: "a document need not be an object",
			raw: `[{"a":"x"},{"a":"y"}]`, property: "1.a", want: "y",
		},
		{
			name: "array query", why: "the syntax is gjson's, queries included",
			raw: `{"users":[{"n":"a","p":"1"},{"n":"b","p":"2"}]}`, property: `users.#(n=="b").p`, want: "2",
		},
		{
			name: "query for what looks like an address", why: "an @ inside a query's value is no modifier",
			raw: `{"users":[{"n":"b@this.org","p":"2"}]}`, property: `users.#(n=="b@this.org").p`, want: "2",
		},
		{
			name: "object", why: "a value other than a string is unchanged",
			raw: `{"a":{"z":1, "b":[true]}}`, property: "a", want: `{"z":1, "b":[true]}`,
		},
		{
			name: "large integer", why: "a number that float64 cannot hold must not change",
			raw: `{"id":12345678901234567890}`, property: "id", want: "12345678901234567890",
		},
		{
			name: "trailing zero", why: "1.50 may be a version, and is not 1.5",
			raw: `{"v":1.50}`, property: "v", want: "1.50",
		},
		{
			name: "exponent", why: "numbers keep their spelling",
			raw: `{"v":1e3}`, property: "v", want: "1e3",
		},
		{
			name: "boolean", why: "true is text in a Secret",
			raw: `{"v":true}`, property: "v", want: "true",
		},
		{
			name: "null", why: "null is no value: a password \"null\" would be wrong",
			raw: `{"v":null}`, property: "v", want: "",
		},
		{
			name: "empty string", why: "an empty value is a value",
			raw: `{"v":""}`, property: "v", want: "",
		},
		{
			name: "escapes in a string", why: "strings come as their value, not as their spelling",
			raw: `{"v":"a\n\u0000\"\u00e9"}`, property: "v", want: "a\n\x00\"é",
		},
		{
			name: "no such key", why: "a missing property is distinguished from a missing secret",
			raw: `{"a":1}`, property: "b", failure: noProperty,
		},
		{
			name: "no such path", why: "a path that ends early is as absent as a key",
			raw: `{"a":{"b":1}}`, property: "a.c.d", failure: noProperty,
		},
		{
			name: "index out of range", why: "an array has no more than its elements",
			raw: `[1,2]`, property: "2", failure: noProperty,
		},
		{
			name: "property of a JSON string", why: "a string is valid JSON and has no properties",
			raw: `"text"`, property: "a", failure: noProperty,
		},
		{
			name: "not JSON", why: "absence is not proven where nothing could be looked up",
			raw: "user=a", property: "user", failure: invalidRequest,
		},
		{
			name: "truncated JSON", why: "gjson finds keys in half a document; half a document is refused",
			raw: `{"a":"x","b":`, property: "a", failure: invalidRequest,
		},
		{
			name: "empty", why: "an empty value is not JSON",
			raw: "", property: "a", failure: invalidRequest,
		},
		{
			name: "modifier", why: "chained modifiers double their input each time: forty of them end the process",
			raw: `{"a":"x"}`, property: "a|@tostr|@tostr", failure: invalidRequest,
		},
		{
			name: "modifier after a dot", why: "gjson takes it for one there too",
			raw: `{"a":{"b":1}}`, property: "a.@keys", failure: invalidRequest,
		},
		{
			name: "modifier in a query", why: "a query holds a path of its own",
			raw: `[{"a":1}]`, property: `#( @tostr|@tostr!="").a`, failure: invalidRequest,
		},
		{
			name: "modifier in an old query", why: "gjson still takes #[ for #(",
			raw: `[{"a":1}]`, property: `#[@tostr!=""].a`, failure: invalidRequest,
		},
		{
			name: "multipath array", why: "nested multipaths grow like modifiers do",
			raw: `{"a":"x"}`, property: "[a,a]|[0,0]", failure: invalidRequest,
		},
		{
			name: "multipath object", why: "likewise",
			raw: `{"a":{"b":"x"}}`, property: "a.{b}", failure: invalidRequest,
		},
		{
			name: "nested key that looks like no modifier", why: "@type is a key of JSON-LD, gjson has no such modifier",
			raw: `{"a":{"@type":"x"}}`, property: "a.@type", want: "x",
		},
		{
			name: "too deep", why: "looking up in what nests deeply takes minutes, and deeper still overflows the stack",
			raw: strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), property: "0", failure: invalidRequest,
		},
		{
			name: "deep enough", why: "the bound is far beyond what people write",
			raw: strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), property: "#", want: "1",
		},
		{
			name: "brackets in a string", why: "brackets in a string do not nest",
			raw: `{"a":"\"` + strings.Repeat("[", 2*maxDepth) + `"}`, property: "a", want: `"` + strings.Repeat("[", 2*maxDepth),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Select("key", []byte(test.raw), test.property)
			if diff := cmp.Diff(test.failure, failureOf(err)); diff != "" {
				t.Fatalf("%s: failure (-want +got):\n%s%v", test.why, diff, err)
			}

			if string(got) != test.want {
				t.Errorf("%s: got %q, not %q", test.why, got, test.want)
			}
		})
	}
}

func TestMap(t *testing.T) {
	for _, test := range []struct {
		name, why     string
		raw, property string
		want          map[string]string
		failure       failure
	}{
		{
			name: "whole", why: "every key with its value: strings unquoted, the rest unchanged",
			raw:  `{"s":"text","n":1.50,"o":{"a":1},"l":[1, 2],"b":false,"z":null,"":"unnamed"}`,
			want: map[string]string{"s": "text", "n": "1.50", "o": `{"a":1}`, "l": "[1, 2]", "b": "false", "z": "", "": "unnamed"},
		},
		{
			name: "empty object", why: "no keys is an answer",
			raw: `{}`, want: map[string]string{},
		},
		{
			name: "object in a property", why: "extract with a property takes the keys from there",
			raw: `{"a":{"b":"x"}}`, property: "a", want: map[string]string{"b": "x"},
		},
		{
			name: "JSON text in a property", why: "people keep JSON as a string inside of JSON",
			raw: `{"a":"{\"b\":\"x\"}"}`, property: "a", want: map[string]string{"b": "x"},
		},
		{
			name: "exact key before path", why: "as in Select",
			raw: `{"a.b":{"k":"exact"},"a":{"b":{"k":"path"}}}`, property: "a.b", want: map[string]string{"k": "exact"},
		},
		{
			name: "not JSON", why: "there are no keys to extract",
			raw: "user=a", failure: invalidRequest,
		},
		{
			name: "truncated JSON", why: "half a document has half its keys, and the others would be deleted",
			raw: `{"a":"x","b":`, failure: invalidRequest,
		},
		{
			name: "array", why: "an array has no keys",
			raw: `[1]`, failure: invalidRequest,
		},
		{
			name: "string in a property", why: "a string that holds no JSON has no keys",
			raw: `{"a":"text"}`, property: "a", failure: invalidRequest,
		},
		{
			name: "half a JSON text in a property", why: "as for the whole",
			raw: `{"a":"{\"b\":"}`, property: "a", failure: invalidRequest,
		},
		{
			name: "no such property", why: "as in Select",
			raw: `{"a":{}}`, property: "b", failure: noProperty,
		},
		{
			name: "too deep", why: "as in Select",
			raw: strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), failure: invalidRequest,
		},
		{
			name: "too deep inside a string", why: "the text in a property is parsed too",
			raw: `{"a":"` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `"}`, property: "a", failure: invalidRequest,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Map("key", []byte(test.raw), test.property)
			if diff := cmp.Diff(test.failure, failureOf(err)); diff != "" {
				t.Fatalf("%s: failure (-want +got):\n%s%v", test.why, diff, err)
			}

			var texts map[string]string
			if got != nil {
				texts = map[string]string{}
				for key, value := range got {
					texts[key] = string(value)
				}
			}

			if diff := cmp.Diff(test.want, texts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// No error may quote the value that was looked into.
func TestErrorsHoldNoValue(t *testing.T) {
	const canary = "canary-5b1f"

	for name, raw := range map[string]string{
		"JSON": `{"a":"` + canary + `"}`, "not JSON": canary, "truncated": `{"a":"` + canary, "string": `"` + canary + `"`,
	} {
		for _, property := range []string{"", "b", "a", "@keys"} {
			_, err := Map("key", []byte(raw), property)
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("Map of %s at %q: %v", name, property, err)
			}

			if _, err := Select("key", []byte(raw), property); err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("Select of %s at %q: %v", name, property, err)
			}
		}
	}
}

func TestReadFetchesOncePerSource(t *testing.T) {
	var (
		mu      sync.Mutex
		fetched = map[string]int{}
	)

	reads := []provider.Read{
		{Key: "a", Property: "x"},
		{Key: "a", Property: "y"},
		{Key: "a", Shape: provider.Map},
		{Key: "a", Version: "1", Property: "x"},
		{Key: "a", Metadata: true, Property: "x"},
		{Key: "b"},
		{Key: "a", Property: "none"},
		{Key: "gone"},
	}

	results := Read(t.Context(), reads, func(_ context.Context, key, version string, metadata bool) (Document, error) {
		mu.Lock()
		defer mu.Unlock()

		source := fmt.Sprintf("%s@%s/%v", key, version, metadata)
		fetched[source]++

		if key == "gone" {
			return Document{}, provider.NotFound("secret %q does not exist", key)
		}

		return Document{Raw: fmt.Appendf(nil, `{"x":"x of %s","y":"y of %s"}`, source, source), Revision: "r of " + source}, nil
	})

	want := map[string]int{"a@/false": 1, "a@1/false": 1, "a@/true": 1, "b@/false": 1, "gone@/false": 1}
	if diff := cmp.Diff(want, fetched); diff != "" {
		t.Errorf("fetches (-want +got):\n%s", diff)
	}

	var got []string

	for _, result := range results {
		switch {
		case result.Err != nil:
			got = append(got, failureOf(result.Err).Reason)
		case result.Map != nil:
			got = append(got, strings.Join(slices.Sorted(maps.Keys(result.Map)), ","))
		default:
			got = append(got, string(result.Value)+" "+result.Revision)
		}
	}

	if diff := cmp.Diff([]string{
		"x of a@/false r of a@/false",
		"y of a@/false r of a@/false",
		"x,y",
		"x of a@1/false r of a@1/false",
		"x of a@/true r of a@/true",
		`{"x":"x of b@/false","y":"y of b@/false"} r of b@/false`,
		pb.ReasonPropertyNotFound,
		pb.ReasonNotFound,
	}, got); diff != "" {
		t.Errorf("results, in the order of the reads (-want +got):\n%s", diff)
	}
}

func TestAnswerNotModified(t *testing.T) {
	for _, test := range []struct {
		name, why       string
		known, revision string
		want            bool
	}{
		{name: "same", why: "what the caller has need not travel again", known: "3", revision: "3", want: true},
		{name: "newer", why: "a new revision is a new value", known: "3", revision: "4"},
		{name: "unknown", why: "a caller that has nothing needs the value", known: "", revision: "4"},
		{name: "without revisions", why: "two empty revisions are not equal: nothing is known of either", known: "", revision: ""},
		{name: "revision lost", why: "a backend that stops naming revisions is read in full", known: "3", revision: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Answer(provider.Read{Key: "k", KnownRevision: test.known}, Document{Raw: []byte("v"), Revision: test.revision})

			want := provider.Result{Value: []byte("v"), Revision: test.revision}
			if test.want {
				want = provider.Result{NotModified: true, Revision: test.revision}
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// A panic in one of the goroutines of Read would end the process: nothing
// above it can recover.
func TestReadSurvivesAPanic(t *testing.T) {
	const canary = "canary-90ce"

	results := Read(t.Context(), []provider.Read{{Key: "good"}, {Key: "bad"}}, func(_ context.Context, key, _ string, _ bool) (Document, error) {
		if key == "bad" {
			panic(errors.New(canary))
		}

		return Document{Raw: []byte("value")}, nil
	})

	if string(results[0].Value) != "value" || results[0].Err != nil {
		t.Errorf("the other read of the batch: %+v", results[0])
	}

	if diff := cmp.Diff(failure{codes.Internal, pb.ReasonInternal}, failureOf(results[1].Err)); diff != "" {
		t.Fatalf("the panic's read (-want +got):\n%s", diff)
	}

	text := results[1].Err.Error()
	if strings.Contains(text, canary) {
		t.Errorf("the error contains the panic's text, which may hold a value: %s", text)
	}

	if !strings.Contains(text, "*errors.errorString") || !strings.Contains(text, "document_test.go:") {
		t.Errorf("the error lacks the panic's type or location: %s", text)
	}
}

func TestReadBoundsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 5*maxFetches + 1

		var running atomic.Int32

		proceed, done := make(chan struct{}), make(chan struct{})
		reads := make([]provider.Read, keys)

		for i := range reads {
			reads[i].Key = strconv.Itoa(i)
		}

		go func() {
			defer close(done)

			Read(t.Context(), reads, func(context.Context, string, string, bool) (Document, error) {
				running.Add(1)
				defer running.Add(-1)

				<-proceed

				return Document{}, nil
			})
		}()

		for left := keys; left > 0; left-- {
			synctest.Wait() // Nothing moves any more.

			if got, want := int(running.Load()), min(left, maxFetches); got != want {
				t.Errorf("with %d keys left %d are fetched at once, not %d", left, got, want)
			}

			proceed <- struct{}{}
		}

		<-done
	})
}

func FuzzSelectAndMap(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"b":[1,2,{"c":"d"}]}}`, "a.b.#(c==\"d\").c"},
		{`{"a.b":1,"a":"{\"x\":1}"}`, "a"},
		{`[[[[]]]]`, "#.#.#"},
		{`{"a":1}`, "a|@tostr|@tostr"},
		{`{"a":1}`, "[a,{a}]"},
		{"{\"\xff\":\"\xfe\"}", "\xff"},
		{`{"a":`, "a"},
		{`{"a":"x","a":"y"}`, "a*"},
		{`{"a":1}`, `#[a=1]#`},
		{"{\"a\":1}\n{\"a\":2}", "..#.a"},
		{`"text"`, `!"static"`},
	} {
		f.Add([]byte(seed[0]), seed[1])
	}

	f.Fuzz(func(t *testing.T, raw []byte, property string) {
		value, err := Select("key", raw, property)
		check(t, err)

		// Nothing that is looked up may grow: see checkPath.
		if limit := 3*len(raw) + len(property) + 64; property != "" && len(value) > limit {
			t.Errorf("%d bytes of %d were selected by %q", len(value), len(raw), property)
		}

		values, err := Map("key", raw, property)
		check(t, err)

		if (values == nil) != (err != nil) {
			t.Errorf("both or none of values and error: %v, %v", values, err)
		}
	})
}

// check refuses errors of any other kind than Select and Map document.
func check(t *testing.T, err error) {
	t.Helper()

	if got := failureOf(err); err != nil && got != noProperty && got != invalidRequest {
		t.Errorf("an error with %v: %v", got, err)
	}
}
