package store

import (
	"net/url"
	"strings"
	"testing"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// hostile are keys that would have a request go elsewhere.
func hostile() []string {
	return []string{
		"a", "a/b", "..", ".", "../..", "../../admin", "a/../../b", "..%2f..%2fadmin", "%2e%2e", `..\..\admin`, "/", "//evil.example", "///evil.example",
		"https://evil.example", "@evil.example", ":80", ".evil.example", "#", "?x=y", "&x=y", "a b", "\r\nX: y", "\x00", "\x7f", "ä", "\xff\xfe", "%", "%zz", ";", "\\evil.example",
		"x\"}, {", "{{ .token }}", "$(id)", strings.Repeat("a", 20_000),
	}
}

// shapes of URLs, with a key in every place where one may stand.
func shapes() []string {
	return []string{
		"https://api.example.com/{{ .remoteRef.key }}",
		"https://api.example.com/v1/{{ .remoteRef.key }}/value",
		"https://api.example.com/v1/{{ .remoteRef.key | path }}",
		"https://api.example.com/v1/{{ .remoteRef.key | path }}/x",
		"https://api.example.com:8443/?key={{ .remoteRef.key }}&more=1",
		"https://api.example.com?key={{ .remoteRef.key }}",
		"https://api.example.com/a?key={{ .remoteRef.key | urlquery }}",
		"https://api.example.com/{{ print .remoteRef.key .remoteRef.property }}",
		`https://api.example.com/{{ printf "%s%s" .remoteRef.key .remoteRef.property | lower }}`,
		"https://api.example.com/{{ if .remoteRef.property }}{{ .remoteRef.property }}{{ else }}{{ .remoteRef.key }}{{ end }}",
		"https://api.example.com#{{ .remoteRef.key }}",
		`https://api.example.com/{{ index .remoteRef "key" }}`,
		"https://[2606:4700::1111]/{{ .remoteRef.key }}",
		"https://api.example.com/{{ .remoteRef.key | b64enc }}/{{ .remoteRef.property | default .remoteRef.key | trim }}",
	}
}

// leadsHome fails where a key has changed where a request goes, or what of it
// is path and what query.
func leadsHome(t *testing.T, shape, key, property string) {
	t.Helper()

	s, err := (&egressPolicy{}).New(t.Context(), environment(), &v2alpha1.Webhook{Spec: v2alpha1.WebhookSpec{URL: shape}})
	if err != nil {
		t.Fatal(err)
	}

	call, err := s.reading(key, property, "", false)
	if err != nil {
		if typed := provider.AsError(err); typed.StoreScope || typed.Reason != "INVALID_REQUEST" {
			t.Errorf("%s with key %q: a key is not the config's fault: %v", shape, key, err)
		}

		if len(key) > 8 && strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error holds the key: %v", shape, err)
		}

		return
	}

	before, _, _ := strings.Cut(shape, "{{")

	plain, err := url.Parse(before)
	if err != nil {
		t.Fatal(err)
	}

	// What goes over the wire is what the library makes of the URL once more.
	got, err := url.Parse(call.url.String())
	if err != nil {
		t.Fatalf("%s with key %q: %v", shape, key, err)
	}

	if got.Scheme != plain.Scheme || got.Host != plain.Host || got.User != nil || got.Opaque != "" || got.Fragment != "" {
		t.Errorf("%s with key %q leads to %s", shape, key, got)
	}

	if !strings.HasPrefix(got.EscapedPath(), plain.EscapedPath()) {
		t.Errorf("%s with key %q has path %s", shape, key, got.EscapedPath())
	}

	for part := range strings.SplitSeq(strings.ReplaceAll(got.Path, `\`, "/"), "/") {
		if part == ".." || part == "." {
			t.Errorf("%s with key %q has path %s", shape, key, got.Path)
		}
	}

	if want := len(plain.Query()) + strings.Count(shape, "&"); len(got.Query()) != want {
		t.Errorf("%s with key %q has query %s", shape, key, got.RawQuery)
	}

	if strings.ContainsFunc(call.url.RequestURI(), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		t.Errorf("%s with key %q: %q", shape, key, call.url.RequestURI())
	}
}

func TestKeysLeadNowhereElse(t *testing.T) {
	for _, shape := range shapes() {
		for _, key := range hostile() {
			leadsHome(t, shape, key, "")
			leadsHome(t, shape, "a", key)
		}
	}
}

func FuzzURL(f *testing.F) {
	for i, key := range hostile() {
		if len(key) < 1000 {
			f.Add(i, key, "")
			f.Add(i, "a", key)
		}
	}

	f.Fuzz(func(t *testing.T, i int, key, property string) {
		if i < 0 || len(key) > 2000 || len(property) > 2000 {
			return
		}

		leadsHome(t, shapes()[i%len(shapes())], key, property)
	})
}

// Every template and path either is refused or works: it neither panics nor runs
// forever.
func FuzzConfig(f *testing.F) {
	for _, shape := range shapes() {
		f.Add(shape, "$.a[?(@.b == 'c')]..d", `{"a":[{"b":"c"}]}`)
	}

	for _, path := range []string{"$..a", "$.a[*]", "$[?(@.a =~ /x/)]", "$[?@.a]", "@", "$", "$[?(length(@.a) > 1)]", "$.a[0:1]", "$[?(@.a in [1,2])]", "$[?(!@.a)]", "$[(@.length-1)]"} {
		f.Add("{{ .remoteRef.key }}", path, `[{"a":"x"},{"a":null},1,[2]]`)
	}

	f.Fuzz(func(_ *testing.T, template, path, answer string) {
		if len(template) > 2000 || len(path) > 500 {
			return
		}

		known := vocabulary{nameRemoteRef: {nameKey, nameProperty, nameRemoteKey, nameVersion}}
		if parsed, err := parseText("spec.body", template, known, maxText, false); err == nil {
			_, _ = parsed.render(map[string]any{nameRemoteRef: map[string]string{nameKey: "k", nameRemoteKey: "k", nameProperty: "p", nameVersion: ""}})
		}

		if result, err := parseResult(path); err == nil {
			_, _ = result.find(values{key: "k", property: "p"}, []byte(answer), map[string]any{nameRemoteRef: map[string]string{nameKey: "k", nameRemoteKey: "k", nameProperty: "p", nameVersion: ""}})
		}
	})
}

// What leads to another host is refused even if a template should make it.
func TestLocate(t *testing.T) {
	s, err := (&egressPolicy{}).New(t.Context(), environment(), &v2alpha1.Webhook{Spec: v2alpha1.WebhookSpec{URL: "https://api.example.com/"}})
	if err != nil {
		t.Fatal(err)
	}

	for _, made := range []string{
		"https://evil.example/", "http://api.example.com/", "https://api.example.com.evil.example/", "https://api.example.com@evil.example/",
		"https://me@api.example.com/", "https://api.example.com:8443/", "https:api.example.com", "//api.example.com/", "/x", "https://api.example.com/%zz",
		"https://api.example.com/a b", "https://api.example.com/a\nb", "https://api.example.com/a/%2e%2e/b", `https://api.example.com/a\..\b`,
	} {
		if u, err := s.read.locate(made); err == nil {
			t.Errorf("%q is taken for %s", made, u)
		}
	}

	u, err := s.read.locate("https://api.example.com/a/..b/c..?x=../#fragment")
	if err != nil || u.String() != "https://api.example.com/a/..b/c..?x=../" {
		t.Errorf("%s, %v", u, err)
	}
}
