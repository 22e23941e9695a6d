package parameterstore

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/internal/fakeaws"
	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, prefix string) *Store {
	t.Helper()

	config := &v2alpha1.AWSParameterStore{ObjectMeta: fakeaws.Object(), Spec: v2alpha1.AWSParameterStoreSpec{AWSAccess: fakeaws.Access()}}
	config.Spec.Prefix = prefix

	s, err := New(t.Context(), fakeaws.Environment(), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close(t.Context()) })

	return s
}

type fields = map[string]any

func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}

	return provider.AsError(err).Code
}

// parameter answers a read of a name, with its selector.
func parameter(name string) fields {
	base, selector, selected := strings.Cut(name, ":")

	p := fields{"Name": base, "Value": "value of " + name, "Version": 2, "LastModifiedDate": 1000, "Type": "SecureString"}
	if selected {
		p["Selector"] = ":" + selector
		p["Version"] = 1
	}

	return p
}

func single(call fakeaws.Call) fakeaws.Answer {
	name, _ := call.In["Name"].(string)

	return fields{"Parameter": parameter(name)}
}

func batches(call fakeaws.Call) fakeaws.Answer {
	names, _ := call.In["Names"].([]any)
	found := make([]fields, 0, len(names))

	for _, name := range names {
		found = append(found, parameter(fmt.Sprint(name)))
	}

	return fields{"Parameters": found}
}

func count(server *fakeaws.Server) map[string]int {
	counts := map[string]int{}
	for _, call := range server.Calls("") {
		counts[call.Operation]++
	}

	return counts
}

func keys(n int) []provider.Read {
	reads := make([]provider.Read, n)
	for i := range reads {
		reads[i] = provider.Read{Key: fmt.Sprintf("k%d", i)}
	}

	return reads
}

// Parameters are read ten at a time, each version once; of two versions of one
// parameter the second is read on its own, for an answer may not say which it
// is.
func TestReadBatches(t *testing.T) {
	server := fakeaws.New(t)
	server.On("GetParameters", batches)
	server.On("GetParameter", single)

	s := open(t, "/app/")

	for _, test := range []struct {
		name, why string
		reads     []provider.Read
		want      map[string]int
	}{
		{"one", "a batch of one needs a right more", keys(1), map[string]int{"GetParameter": 1}},
		{"the same key", "properties are selected here", append(keys(1), keys(1)...), map[string]int{"GetParameter": 1}},
		{"twenty-five", "AWS takes ten", keys(25), map[string]int{"GetParameters": 3}},
		{"versions", "numbers and labels", []provider.Read{{Key: "a", Version: "1"}, {Key: "b", Version: "stable"}}, map[string]int{"GetParameters": 1}},
		{"two versions", "of one parameter", []provider.Read{{Key: "a", Version: "1"}, {Key: "b"}, {Key: "a"}}, map[string]int{"GetParameters": 1, "GetParameter": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Forget()

			for i, result := range s.Read(t.Context(), test.reads) {
				want := "value of /app/" + test.reads[i].Key
				if version := test.reads[i].Version; version != "" {
					want += ":" + version
				}

				if result.Err != nil || string(result.Value) != want || result.Revision == "" {
					t.Errorf("%s: %q, %v", want, result.Value, result.Err)
				}
			}

			if diff := cmp.Diff(test.want, count(server)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}

	for _, call := range append(server.Calls("GetParameters"), server.Calls("GetParameter")...) {
		if call.In["WithDecryption"] != true {
			t.Errorf("%s without decryption", call.Operation)
		}
	}

	if result := s.Read(t.Context(), []provider.Read{{Key: "a", Version: "1:2"}})[0]; codeOf(result.Err) != codes.InvalidArgument {
		t.Errorf("a version that is none: %v", result.Err)
	}
}

// An answer with another version than the requested one is an error.
func TestReadAnotherVersion(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetParameters", fields{"Parameters": []fields{
		{"Name": "a", "Value": "old", "Version": 1, "Selector": ":1"}, {"Name": "b", "Value": "latest", "Version": 2},
	}})
	server.On("GetParameter", single)

	results := open(t, "").Read(t.Context(), []provider.Read{{Key: "a"}, {Key: "b", Version: "stable"}})
	if string(results[0].Value) != "value of a" || string(results[1].Value) != "value of b:stable" {
		t.Errorf("%q, %q", results[0].Value, results[1].Value)
	}
}

// That a parameter is absent is for a read of its own to prove; without the
// right to batches all are read so, for a while.
func TestReadSingly(t *testing.T) {
	server := fakeaws.New(t)
	server.On("GetParameter", func(call fakeaws.Call) fakeaws.Answer {
		switch call.In["Name"] {
		case "k1":
			return fakeaws.Refusal{Code: "ParameterNotFound"}
		case "k2":
			return fakeaws.Refusal{Code: "ValidationException", Message: "Parameter name must not be so"}
		default:
			return single(call)
		}
	})
	server.Always("GetParameters", fields{"Parameters": []fields{parameter("k0")}, "InvalidParameters": []string{"k1", "k2"}})

	s := open(t, "")
	want := []codes.Code{codes.OK, codes.NotFound, codes.InvalidArgument}

	check := func(batches, singles int) {
		t.Helper()
		server.Forget()

		for i, result := range s.Read(t.Context(), keys(3)) {
			if codeOf(result.Err) != want[i] {
				t.Errorf("k%d: %v, want %v", i, result.Err, want[i])
			}
		}

		if diff := cmp.Diff([]int{batches, singles}, []int{len(server.Calls("GetParameters")), len(server.Calls("GetParameter"))}); diff != "" {
			t.Errorf("batches and single reads (-want +got):\n%s", diff)
		}
	}

	check(1, 2)
	server.Always("GetParameters", fakeaws.Refusal{Code: "AccessDeniedException"})
	check(1, 3)
	check(0, 3)

	server.Always("GetParameters", fakeaws.Refusal{Code: "ThrottlingException"})

	s = open(t, "")
	want = []codes.Code{codes.ResourceExhausted, codes.ResourceExhausted, codes.ResourceExhausted}
	check(1, 0)
}

// Tags are the metadata; missing tags do not mean that the parameter is absent.
func TestMetadata(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("ListTagsForResource", fields{"TagList": []fields{{"Key": "team", "Value": "blue"}}})
	server.On("GetParameter", single)

	s := open(t, "")
	read := []provider.Read{{Key: "a", Metadata: true}}

	if result := s.Read(t.Context(), read)[0]; string(result.Value) != `{"team":"blue"}` {
		t.Errorf("%q, %v", result.Value, result.Err)
	}

	server.Always("ListTagsForResource", fakeaws.Refusal{Code: "InvalidResourceId"})

	if result := s.Read(t.Context(), read)[0]; codeOf(result.Err) != codes.Unavailable {
		t.Errorf("a parameter that is there: %v", result.Err)
	}

	server.Always("GetParameter", fakeaws.Refusal{Code: "ParameterNotFound"})

	if result := s.Read(t.Context(), read)[0]; codeOf(result.Err) != codes.NotFound {
		t.Errorf("one that is not: %v", result.Err)
	}
}

// A path of the hierarchy is read as such; tags, and names outside of it, are
// listed first.
func TestFind(t *testing.T) {
	server := fakeaws.New(t)
	server.On("GetParameters", batches)
	server.On("GetParameter", single)
	server.On("GetParametersByPath", func(call fakeaws.Call) fakeaws.Answer {
		if call.In["NextToken"] == nil {
			return fields{"Parameters": []fields{parameter("/app/a"), parameter("/app/x/b")}, "NextToken": "2"}
		}

		return fields{"Parameters": []fields{parameter("/app/c"), parameter("/app/a")}}
	})
	server.On("DescribeParameters", func(call fakeaws.Call) fakeaws.Answer {
		if call.In["NextToken"] == nil {
			return fields{"Parameters": []fields{{"Name": "/app/a"}, {"Name": "/application/b"}}, "NextToken": "2"}
		}

		return fields{"Parameters": []fields{{"Name": "plain"}, {"Name": "/app/c"}}}
	})

	below := func(path string) *string { return &path }

	for _, test := range []struct {
		name, why, prefix string
		query             provider.Query
		want              []string
		by                string
	}{
		{"path", "one call gives names and values", "", provider.Query{Path: below("/app/")}, []string{"/app/a", "/app/c", "/app/x/b"}, "GetParametersByPath"},
		{"path and name", "the expression is compared here", "", provider.Query{Path: below("/app"), Name: regexp.MustCompile("b$")}, []string{"/app/x/b"}, "GetParametersByPath"},
		{"prefix", "keys are returned without it", "/app/", provider.Query{}, []string{"a", "c", "x/b"}, "GetParametersByPath"},
		{"tags", "only a list contains them", "", provider.Query{Path: below("/app"), Tags: map[string]string{"team": "blue"}}, []string{"/app/a", "/app/c"}, "DescribeParameters"},
		{"everything", "there are names outside of the hierarchy", "", provider.Query{}, []string{"/app/a", "/app/c", "/application/b", "plain"}, "DescribeParameters"},
		{"a beginning", "of names outside of the hierarchy", "", provider.Query{Path: below("pl")}, []string{"plain"}, "DescribeParameters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Forget()

			var found []string

			err := open(t, test.prefix).Find(t.Context(), test.query, func(one provider.Found) error {
				found = append(found, one.Key)

				if !strings.HasPrefix(string(one.Value), "value of ") {
					t.Errorf("%s: %q", one.Key, one.Value)
				}

				return nil
			})
			slices.Sort(found)

			if diff := cmp.Diff(test.want, found); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", test.why, err, diff)
			}

			if len(server.Calls(test.by)) != 2 {
				t.Errorf("%s: %v", test.why, count(server))
			}
		})
	}

	enough := errors.New("enough")
	if err := open(t, "").Find(t.Context(), provider.Query{Path: below("/app")}, func(provider.Found) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a search that its caller ends: %v", err)
	}

	server.Always("GetParametersByPath", fields{"NextToken": "2"})

	if err := open(t, "").Find(t.Context(), provider.Query{Path: below("/app")}, nil); err == nil || !strings.Contains(err.Error(), "repeats a page") {
		t.Errorf("a list without end: %v", err)
	}

	server.Always("GetParametersByPath", fakeaws.Refusal{Code: "AccessDeniedException"})

	if err := open(t, "").Find(t.Context(), provider.Query{Path: below("/app")}, nil); codeOf(err) != codes.PermissionDenied {
		t.Errorf("a path that may not be read: %v", err)
	}
}

const owner = "owner-a"

// holding has the server hold one parameter with tags.
func holding(server *fakeaws.Server, value string, tags map[string]string) {
	list := []fields{}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, fields{"Key": key, "Value": tags[key]})
	}

	server.Always("GetParameter", fields{"Parameter": fields{"Name": "/db", "Value": value, "Version": 3, "Type": "SecureString", "LastModifiedDate": 1000}})
	server.Always("ListTagsForResource", fields{"TagList": list})
	server.Always("DescribeParameters", fields{"Parameters": []fields{{
		"Name": "/db", "Description": "d", "KeyId": "alias/k", "Tier": "Advanced", "Policies": []fields{{"PolicyText": `{"Type": "NoChangeNotification"}`}},
	}}})
	server.Always("PutParameter", fields{"Version": 4})
	server.Always("AddTagsToResource", fields{})
	server.Always("DeleteParameter", fields{})
	server.Forget()
}

func writes(server *fakeaws.Server) []string {
	names := []string{}

	for _, call := range server.Calls("") {
		switch call.Operation {
		case "PutParameter", "AddTagsToResource", "DeleteParameter":
			names = append(names, call.Operation)
		}
	}

	return names
}

func metadata(spec string) []byte {
	return []byte(`{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":` + spec + `}`)
}

// A push writes what is missing, and nothing else.
func TestPush(t *testing.T) {
	server := fakeaws.New(t)
	s := open(t, "")
	own := tags.Owners().Tags(owner, nil)

	for _, test := range []struct {
		name, why, value string
		tags             map[string]string
		push             provider.Push
		want             []string
		code             codes.Code
		in               map[string]any
	}{
		{name: "the same", why: "every sync repeats it", value: "v", tags: own, push: provider.Push{Value: []byte("v")}},
		{name: "another", why: "it keeps its type", value: "w", tags: own, push: provider.Push{Value: []byte("v")}, want: []string{"PutParameter"}, in: fields{"Type": "SecureString", "Overwrite": true, "Value": "v"}},
		{name: "another type", why: "it was requested", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"secretType":"String"}`)}, want: []string{"PutParameter"}, in: fields{"Type": "String"}},
		{name: "foreign", why: "it stays", value: "w", tags: tags.Owners().Tags("owner-b", nil), push: provider.Push{Value: []byte("v"), Adopt: true}, code: codes.FailedPrecondition},
		{name: "unmarked", why: "it stays", value: "w", push: provider.Push{Value: []byte("v")}, code: codes.FailedPrecondition},
		{name: "adopted", why: "tags are set on their own", value: "w", push: provider.Push{Value: []byte("v"), Adopt: true}, want: []string{"AddTagsToResource", "PutParameter"}},
		{name: "of ESO v1", why: "it is taken over", value: "v", tags: map[string]string{"managed-by": "external-secrets"}, push: provider.Push{Value: []byte("v")}, want: []string{"AddTagsToResource"}},
		{name: "kept", why: "it was generated once", value: "w", push: provider.Push{Value: []byte("v"), IfNotExists: true}},
		{name: "property", why: "the others stay", value: `{"a":"1"}`, tags: own, push: provider.Push{Property: "b", Value: []byte("v")}, want: []string{"PutParameter"}, in: fields{"Value": `{"a":"1","b":"v"}`}},
		{name: "bytes", why: "a parameter is a text", value: "w", tags: own, push: provider.Push{Value: []byte{0xff}}, code: codes.InvalidArgument},
		{name: "empty", why: "AWS keeps no empty parameter", value: "w", tags: own, push: provider.Push{}, code: codes.InvalidArgument},
		{name: "too large", why: "AWS would quote it", value: "w", tags: own, push: provider.Push{Value: []byte(strings.Repeat("x", maxValue+1))}, code: codes.InvalidArgument},
		{name: "settings that are so", why: "nothing changes", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"secretType":"SecureString","description":"d","kmsKeyID":"k","tier":{"type":"Advanced","policies":[{"Type":"NoChangeNotification"}]}}`)}},
		{name: "settings", why: "they come with the value", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"description":"e","kmsKeyID":"l","tags":{"team":"blue"}}`)}, want: []string{"AddTagsToResource", "PutParameter"}, in: fields{"Description": "e", "KeyId": "l"}},
		{name: "other policies", why: "they are compared as JSON", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"tier":{"type":"Advanced","policies":[]}}`)}, want: []string{"PutParameter"}, in: fields{"Tier": "Advanced", "Policies": "[]"}},
		{name: "base64", why: "each value of a whole Secret is its text", value: "w", tags: own, push: provider.Push{Value: []byte(`{"a":"djE=","b":"djI="}`), Settings: metadata(`{"encodeAsDecoded":true}`)}, want: []string{"PutParameter"}, in: fields{"Value": `{"a":"v1","b":"v2"}`}},
		{name: "no base64", why: "it is text already", value: "w", tags: own, push: provider.Push{Value: []byte(`{"a":"v-1"}`), Settings: metadata(`{"encodeAsDecoded":true}`)}, want: []string{"PutParameter"}, in: fields{"Value": `{"a":"v-1"}`}},
		{name: "a wrong type", why: "there are three", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"secretType":"Secret"}`)}, code: codes.InvalidArgument},
		{name: "a wrong tier", why: "there are three", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"tier":{"type":"Gold"}}`)}, code: codes.InvalidArgument},
		{name: "policies that are none", why: "AWS takes a list", value: "v", tags: own, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"tier":{"policies":{}}}`)}, code: codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			holding(server, test.value, test.tags)

			test.push.Key, test.push.Owner = "/db", owner

			pushed, err := s.Push(t.Context(), test.push)
			if codeOf(err) != test.code {
				t.Fatalf("%s: %v", test.why, err)
			}

			if test.want == nil {
				test.want = []string{}
			}

			if diff := cmp.Diff(test.want, writes(server)); diff != "" || pushed.Changed != (len(test.want) > 0) {
				t.Fatalf("%s: changed is %t (-want +got):\n%s", test.why, pushed.Changed, diff)
			}

			for field, want := range test.in {
				if got := server.Calls("PutParameter")[0].In[field]; got != want {
					t.Errorf("%s is %v, want %v", field, got, want)
				}
			}
		})
	}
}

// A new parameter carries its owner's mark from the start, and its revision is
// the one that a read would give.
func TestPushNew(t *testing.T) {
	server := fakeaws.New(t)
	s := open(t, "")
	holding(server, "v", nil)

	made := false

	server.On("GetParameter", func(fakeaws.Call) fakeaws.Answer {
		if !made {
			return fakeaws.Refusal{Code: "ParameterNotFound"}
		}

		return fields{"Parameter": fields{"Name": "/db", "Value": "v", "Version": 1, "LastModifiedDate": 1000}}
	})
	server.On("PutParameter", func(fakeaws.Call) fakeaws.Answer {
		made = true

		return fields{"Version": 1}
	})

	pushed, err := s.Push(t.Context(), provider.Push{Key: "/db", Value: []byte("v"), Owner: owner, Settings: metadata(`{"tags":{"team":"blue"}}`)})
	if err != nil || !pushed.Changed || pushed.Revision != "1@1000000" {
		t.Fatalf("%+v, %v", pushed, err)
	}

	in := server.Calls("PutParameter")[0].In
	if text := fmt.Sprint(in["Tags"]); in["Type"] != "String" || in["Overwrite"] == true || !strings.Contains(text, owner) || !strings.Contains(text, "blue") {
		t.Errorf("PutParameter: %v", in)
	}

	made = false

	server.Always("PutParameter", fakeaws.Refusal{Code: "ParameterAlreadyExists"})

	if _, err := s.Push(t.Context(), provider.Push{Key: "/db", Value: []byte("v"), Owner: owner}); codeOf(err) != codes.Aborted {
		t.Errorf("two concurrent creations: %v", err)
	}

	server.Always("PutParameter", fakeaws.Refusal{Code: "ValidationException", Message: "Value 'a secret value' at 'value' failed to satisfy constraint: too long"})

	if _, err := s.Push(t.Context(), provider.Push{Key: "/db", Value: []byte("a secret value"), Owner: owner}); codeOf(err) != codes.InvalidArgument || strings.Contains(err.Error(), "a secret value") {
		t.Errorf("a value that AWS quotes: %v", err)
	}
}

// A parameter is deleted by its owner alone.
func TestDelete(t *testing.T) {
	server := fakeaws.New(t)
	s := open(t, "")

	for _, test := range []struct {
		name, why, value, property string
		tags                       map[string]string
		want                       []string
		code                       codes.Code
	}{
		{name: "ours", why: "it goes", value: "v", tags: tags.Owners().Tags(owner, nil), want: []string{"DeleteParameter"}},
		{name: "foreign", why: "it stays", value: "v", tags: tags.Owners().Tags("owner-b", nil), code: codes.FailedPrecondition},
		{name: "unmarked", why: "it stays", value: "v", code: codes.FailedPrecondition},
		{name: "property", why: "the others stay", value: `{"a":"1","b":"2"}`, property: "a", tags: tags.Owners().Tags(owner, nil), want: []string{"PutParameter"}},
		{name: "last property", why: "the parameter goes", value: `{"a":"1"}`, property: "a", tags: tags.Owners().Tags(owner, nil), want: []string{"DeleteParameter"}},
		{name: "no such property", why: "it is absent already", value: `{"a":"1"}`, property: "b", tags: tags.Owners().Tags(owner, nil)},
	} {
		t.Run(test.name, func(t *testing.T) {
			holding(server, test.value, test.tags)

			changed, err := s.Delete(t.Context(), provider.Deletion{Key: "/db", Property: test.property, Owner: owner})
			if codeOf(err) != test.code {
				t.Fatalf("%s: %v", test.why, err)
			}

			if test.want == nil {
				test.want = []string{}
			}

			if diff := cmp.Diff(test.want, writes(server)); diff != "" || changed != (len(test.want) > 0) {
				t.Errorf("%s: changed is %t (-want +got):\n%s", test.why, changed, diff)
			}
		})
	}

	server.Always("GetParameter", fakeaws.Refusal{Code: "ParameterNotFound"})

	if changed, err := s.Delete(t.Context(), provider.Deletion{Key: "/db", Owner: owner}); changed || err != nil {
		t.Errorf("one that is absent: %t, %v", changed, err)
	}

	if there, err := s.Exists(t.Context(), "/db", ""); there || err != nil {
		t.Errorf("Exists of one that is absent: %t, %v", there, err)
	}

	server.Always("GetParameter", fakeaws.Refusal{Code: "AccessDeniedException"})

	if _, err := s.Exists(t.Context(), "/db", ""); codeOf(err) != codes.PermissionDenied {
		t.Errorf("Exists of one that may not be seen: %v", err)
	}
}

// The versions of a parameter that was deleted and created again restart at one:
// its revision differs.
func TestRevision(t *testing.T) {
	server := fakeaws.New(t)
	s := open(t, "")

	revision := func(modified int64) string {
		server.Always("GetParameter", fields{"Parameter": fields{"Name": "/db", "Value": "v", "Version": 1, "LastModifiedDate": modified}})

		return s.Read(t.Context(), []provider.Read{{Key: "/db"}})[0].Revision
	}

	now := time.Now().Unix()
	if revision(now) == revision(now+1) {
		t.Error("the revision is the same")
	}
}
