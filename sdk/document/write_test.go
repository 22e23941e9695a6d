package document

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"
)

func TestSet(t *testing.T) {
	for _, test := range []struct {
		name, why, raw, property, value, want string
		code                                  codes.Code
	}{
		{name: "new document", why: "the first property makes the secret", property: "a", value: "1", want: `{"a":"1"}`},
		{name: "new property", why: "the other properties are kept", raw: `{"b": 2,  "c":[1.50]}`, property: "a", value: "1", want: `{"b": 2,  "c":[1.50],"a":"1"}`},
		{name: "replaced", why: "in its place", raw: `{"a":"0","b":2}`, property: "a", value: "1", want: `{"a":"1","b":2}`},
		{name: "number", why: "a value is a text, whatever stood there", raw: `{"a":0}`, property: "a", value: "1", want: `{"a":"1"}`},
		{name: "dotted key", why: "a new key has the very name", raw: `{}`, property: "tls.crt", value: "1", want: `{"tls.crt":"1"}`},
		{name: "dotted key that is there", why: "before a path", raw: `{"tls.crt":"0","tls":{"crt":"0"}}`, property: "tls.crt", value: "1", want: `{"tls.crt":"1","tls":{"crt":"0"}}`},
		{name: "path that is there", why: "where a read would find it", raw: `{"tls":{"crt":"0"}}`, property: "tls.crt", value: "1", want: `{"tls":{"crt":"1"}}`},
		{name: "special characters", why: "a name is no expression", raw: `{"x":"0"}`, property: `#.*?|@!\"[]{}():-1`, value: "1", want: `{"x":"0","#.*?|@!\\\"[]{}():-1":"1"}`},
		{name: "digits", why: "an object has no places", raw: `{}`, property: "0", value: "1", want: `{"0":"1"}`},
		{name: "minus one", why: "likewise", raw: `{"a":"0"}`, property: "-1", value: "1", want: `{"a":"0","-1":"1"}`},
		{name: "quotes in the value", why: "it is escaped", property: "a", value: `"\` + "\n", want: `{"a":"\"\\\n"}`},
		{name: "not JSON", why: "there is nothing to write to", raw: `plain`, property: "a", value: "1", code: codes.InvalidArgument},
		{name: "array", why: "likewise", raw: `[1]`, property: "0", value: "1", code: codes.InvalidArgument},
		{name: "bytes", why: "JSON cannot hold them", raw: `{}`, property: "a", value: "\xff", code: codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Set("k", []byte(test.raw), test.property, []byte(test.value))

			if test.code != codes.OK {
				if provider.AsError(err).Code != test.code {
					t.Errorf("%s: %v, want %v", test.why, err, test.code)
				}

				return
			}

			if err != nil || string(got) != test.want {
				t.Fatalf("%s: %s, %v, want %s", test.why, got, err, test.want)
			}

			if !Holds(got, test.property, []byte(test.value)) || !Has(got, test.property) {
				t.Errorf("%s: what was set does not hold", test.why)
			}

			if read, err := Select("k", got, test.property); test.name != "special characters" && (err != nil || string(read) != test.value) {
				t.Errorf("%s: a read answers %q, %v", test.why, read, err)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	for _, test := range []struct {
		name, why, raw, property, want string
		left                           bool
	}{
		{name: "one of two", why: "the other stays", raw: `{"a":"1","b":2}`, property: "a", want: `{"b":2}`, left: true},
		{name: "the last", why: "nothing is left", raw: `{"a":"1"}`, property: "a", want: `{}`},
		{name: "none", why: "no error", raw: `{"a":"1"}`, property: "b", want: `{"a":"1"}`, left: true},
		{name: "a quote", why: "the surrounding text is kept", raw: `{"+":"1","a-1)":"xb","\"":"VALUE"}`, property: `"`, want: `{"+":"1","a-1)":"xb"}`, left: true},
		{name: "a leading quote", why: "what is left is JSON", raw: `{"\"x":"V"}`, property: `"x`, want: `{}`},
		{name: "a path", why: "where a read would find it", raw: `{"a":{"b":"1"}}`, property: "a.b", want: `{"a":{}}`, left: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, left, err := Remove("k", []byte(test.raw), test.property)
			if err != nil || string(got) != test.want || left != test.left {
				t.Errorf("%s: %s, %t, %v", test.why, got, left, err)
			}
		})
	}
}

func TestEqual(t *testing.T) {
	for _, test := range []struct {
		name, a, b string
		want       bool
	}{
		{"order and spaces mean nothing", `{"a":1, "b":[2]}`, `{"b":[2],"a":1}`, true},
		{"numbers keep their digits", `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, false},
		{"the order of a list does", `[1,2]`, `[2,1]`, false},
		{"what is no JSON is bytes", `x`, `x`, true},
		{"and differs by them", `x`, `x `, false},
		{"more than one value is no value", `1 2`, `1  2`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Equal([]byte(test.a), []byte(test.b)); got != test.want {
				t.Errorf("Equal is %t", got)
			}
		})
	}
}
