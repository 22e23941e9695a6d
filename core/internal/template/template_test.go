package template

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

func TestRender(t *testing.T) {
	t.Parallel()

	values := map[string]string{"user": "me", "empty": "", "list": `[{"n":1,"c":[{"n":2,"c":[]}]}]`}

	for _, c := range []struct{ why, text, want string }{
		{"text stays", "a: b\n", "a: b\n"},
		{"an empty template is an empty value", "", ""},
		{"a template of definitions only is an empty value", `{{ define "a" }}x{{ end }}`, ""},
		{"a value", "{{ .user }}", "me"},
		{"a value from the top, from within", `{{ with "x" }}{{ . }}{{ $.user }}{{ end }}`, "xme"},
		{"a value as an argument", `{{ upper .user }}{{ upper $.user }}`, "MEME"},
		{"a value out of parentheses", `{{ (dict "a" .user).a | upper }}`, "ME"},
		{"a value out of a variable", `{{ $d := dict "a" (dict "b" .user) }}{{ $d.a.b }}{{ print $d.a.b }}`, "meme"},
		{"an empty value is there", "<{{ .empty }}>", "<>"},
		{"if and else", `{{ if .empty }}a{{ else if .user }}b{{ else }}c{{ end }}`, "b"},
		{"with and else", `{{ with .empty }}a{{ else }}b{{ end }}`, "b"},
		{"all values, in the order of their keys", `{{ range $k, $v := . }}{{ if ne $k "list" }}{{ $k }}={{ $v }};{{ end }}{{ end }}`, "empty=;user=me;"},
		{"break and continue", `{{ range 5 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}`, "02"},
		{"range over nothing", `{{ range list }}a{{ else }}b{{ end }}`, "b"},
		{"a variable that a range changes", `{{ $x := "" }}{{ range 3 }}{{ $x = print $x . }}{{ end }}{{ $x }}`, "012"},
		{"a template that calls itself", `{{ define "t" }}{{ range . }}{{ .n }}{{ template "t" .c }}{{ end }}{{ end }}{{ template "t" (fromJson .list) }}`, "12"},
		{"a block", `{{ block "b" .user }}<{{ . }}>{{ end }}`, "<me>"},
		{"comments and trimming", "a {{- /* no */ -}} b", "ab"},
		{"no value prints as text/template has it", `{{ (dict "a" nil).a }}`, "<no value>"},
		{"a method of a time", `{{ (toDate "2006-01-02" "2024-02-03").Year }} {{ ((toDate "2006-01-02" "2024-02-03").AddDate 0 1 1).Format "2006-01-02" }}`, "2024 2024-03-04"},
		{"a method with the last argument piped", `{{ "2006" | (toDate "2006-01-02" "2024-02-03").Format }}`, "2024"},
		{"a field of a certificate", `{{ with genCAWithKey "x" 1 (genPrivateKey "ecdsa") }}{{ contains "BEGIN" .Cert }}{{ end }}`, "true"},
		{"binary values stay as they are", `{{ b64dec "AP8=" }}`, "\x00\xff"},
	} {
		got, err := New(Options{}).Render("k", c.text, values)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s makes %q, %v; want %q", c.why, c.text, got, err, c.want)
		}
	}

	if len(values) != 3 {
		t.Error("rendering changed the data")
	}
}

// Trees are rewritten before they run. What they mean must stay the same.
func TestRenderIsTextTemplate(t *testing.T) {
	t.Parallel()

	texts := []string{
		`{{ eq nil (get (dict "x" nil) "x") }} {{ eq 1 1.0 | not }}`, `{{ eq (list 1) nil }}`, `{{ ne "a" "b" }}{{ eq 'a' 97 }}{{ eq true (not false) }}`,
		`{{ index .m "a" }}`, `{{ printf "%s-%v" .a (list .a .b) }}`, `{{ .a | printf "%q" }}`, `{{ $x := .a }}{{ $x }}`,
		`{{ range $i, $c := list "x" "y" }}{{ $i }}{{ $c }}{{ $.a }}{{ end }}`, `{{ with $v := .a }}{{ $v }}{{ end }}`,
		`{{ if and .a (not .e) }}{{ .a | len }}{{ end }}`, `{{ dict "x" .a }}`, `{{ (dict "x" (dict "y" 1)).x.y }}`,
		`{{ list nil 1 "x" 1.5 true }}`, `{{ range 3 }}{{ . }}{{ end }}`, `{{ len . }}`, `{{ .a }}{{- " " -}}{{ .b }}`, `{{ html .h }}{{ js .h }}{{ urlquery .h }}`,
		`{{ define "t" }}{{ .x }}{{ $.x }}{{ end }}{{ template "t" (dict "x" .a) }}`, `{{ print nil }}{{ print }}{{ println .a }}`, `{{ 1.0 }} {{ 1e3 }} {{ 0x10 }} {{ 'a' }}`,
		`{{ $d := dict }}{{ $_ := set $d "k" .a }}{{ $d.k }}{{ get $d "z" }}`, `{{ default "x" .e | upper | quote }}`, `{{ ternary .a .b (eq .a "va") }}`,
		`{{ or .e .b }}{{ and .a .b }}{{ and .e (fail "x") }}`, `{{ slice (list 1 2 3) 1 2 }}`, `{{ (split "," .l)._0 }}`, `{{ duration 90 }}{{ (semver "1.2.3").IncMinor }}`,
	}
	values := map[string]string{"a": "va", "b": "vb", "e": "", "h": `<a href="x">'&`, "l": "x,y", "m": "text"}

	for _, text := range texts {
		var want strings.Builder

		wantErr := template.Must(template.New("k").Option("missingkey=error").Funcs(sprig.TxtFuncMap()).Parse(text)).Execute(&want, values)
		got, err := New(Options{}).Render("k", text, values)

		if (err != nil) != (wantErr != nil) || wantErr == nil && string(got) != want.String() {
			t.Errorf("%s makes %q, %v; text/template makes %q, %v", text, got, err, want.String(), wantErr)
		}
	}
}

func TestDelimiters(t *testing.T) {
	t.Parallel()

	e := New(Options{Left: "<<", Right: ">>"})

	got, err := e.Render("k", "{{ .user }} << .user >>", map[string]string{"user": "me"})
	if err != nil || string(got) != "{{ .user }} me" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEngineIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()

	e := New(Options{})

	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			value := strconv.Itoa(i)

			got, err := e.Render("k", `{{ range 100 }}{{ $.v | quote | len }}{{ end }}{{ .v }}`, map[string]string{"v": value})
			if err != nil || !strings.HasSuffix(string(got), value) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}

	group.Wait()
}

func TestCheck(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ why, text, want string }{
		{"a good template", "{{ .user | upper }}", ""},
		{"an action that is not closed", "a\n{{ .user", `template "k", line 2: ` + causeSyntax},
		{"an unknown function", `{{ upprr .user }}`, `template "k", line 1: there is no function "upprr"`},
		{"a function of this package", `{{ _field . "user" }}`, `template "k", line 1: there is no function "_field"`},
		{"an unknown variable", "\n\n{{ $x }}", `template "k", line 3: ` + causeSyntax},
		{"a missing end", "{{ if .user }}", `template "k", line 1: ` + causeSyntax},
		{"an end too many", "{{ end }}", `template "k", line 1: ` + causeSyntax},
		{"an else alone", "{{ else }}", `template "k", line 1: ` + causeSyntax},
		{"nothing to do", "{{ }}", `template "k", line 1: ` + causeSyntax},
		{"nothing to test", "{{ if }}{{ end }}", `template "k", line 1: ` + causeSyntax},
		{"a parenthesis", "{{ (upper .user }}", `template "k", line 1: ` + causeSyntax},
		{"another parenthesis", "{{ upper .user) }}", `template "k", line 1: ` + causeSyntax},
		{"a text without end", `{{ "secret }}`, `template "k", line 1: ` + causeSyntax},
		{"a number that is none", `{{ 1secret }}`, `template "k", line 1: ` + causeSyntax},
		{"a character", `{{ ! }}`, `template "k", line 1: ` + causeSyntax},
		{"a character that is not printable", "{{ 1 \x01 }}", `template "k", line 1: ` + causeSyntax},
		{"a value where a function must be", `{{ .user | "secret" }}`, `template "k", line 1: ` + causeSyntax},
		{"a break alone", `{{ break }}`, `template "k", line 1: ` + causeSyntax},
		{"a template twice", `{{ define "a" }}1{{ end }}{{ define "a" }}2{{ end }}`, `template "k", line 1: ` + causeSyntax},
		{"a template that is not there", "\n" + `{{ template "secret" }}`, `template "k", line 2: it calls a template that it does not define`},
		{"a field of a text", `{{ "secret".x }}`, `template "k", line 1: ` + causeSyntax},
		{"too much text", strings.Repeat("x", maxText+1), `template "k": it is larger than 1048576 bytes`},
		{"too many actions", strings.Repeat("{{ 1 }}", maxActions+1), `template "k": it has more than 20000 actions`},
		{"too many levels of ifs", strings.Repeat("{{ if 1 }}", 300) + strings.Repeat("{{ end }}", 300), `template "k", line 1: it is nested deeper than 200 levels`},
		{"too many levels of parentheses", "{{ " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + " }}", `template "k", line 1: it is nested deeper than 200 levels`},
		{"more levels than the parser takes", "{{ " + strings.Repeat("(", 20000) + "1" + strings.Repeat(")", 20000) + " }}", `template "k", line 1: ` + causeSyntax},
	} {
		err := New(Options{}).Check("k", c.text)

		got := ""
		if err != nil {
			got = err.Error()
		}

		if got != c.want {
			t.Errorf("%s: err = %s; want %s", c.why, got, c.want)
		}

		if strings.Contains(got, "secret") {
			t.Errorf("%s: the error quotes the template", c.why)
		}
	}
}

const canary = "canary-3f9c17e2-Wert"

// leaks reports whether an error holds a part of the canary.
func leaks(err error) bool {
	text := strings.ToLower(err.Error())

	return strings.Contains(text, "canary") || strings.Contains(text, "3f9c17e2") || strings.Contains(text, "wert")
}

func TestErrorsNameLineAndCauseAndNoValue(t *testing.T) {
	t.Parallel()

	const large = `(repeat 60000 .canary)`

	values := map[string]string{
		"canary": canary, "pem": "-----BEGIN " + canary + "-----\n", "cert": "-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n",
		"key": "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n", "json": `{"` + canary + `":`,
	}
	for key, value := range fixtures(t) {
		values[key+"Good"] = value
	}

	for _, c := range []struct{ why, text, want string }{
		{"a value that was not fetched", "a\n\n{{ .usernme }}", `template "config.yaml", line 3: no value "usernme" was fetched`},
		{"a value of a value that was not fetched", "{{ .nope.nope }}", `line 1: no value "nope" was fetched`},
		{"a value that was not fetched, as an argument", `{{ upper $.nope }}`, `line 1: no value "nope" was fetched`},
		{"a value of a value", `{{ .canary.nope }}`, `"nope" is asked of what is no dict`},
		{"a key that is not there", `{{ (dict "a" .canary).nope }}`, `the dict has no key "nope"`},
		{"a key of nothing", `{{ (fromJson .canary).nope }}`, `"nope" is asked of what has no value`},
		{"arguments for a value", `{{ .canary 1 }}`, `"canary" takes no arguments`},
		{"arguments for a variable", `{{ $x := .canary }}{{ $x 1 }}`, causeExecute},
		{"a value of a null in JSON", `{{ (fromJson "{\"a\":null}").a.b }}`, `"b" is asked of what has no value`},
		{"an unexported field", `{{ (semver "1.2.3").major }}`, `"major" is asked of what is no dict`},
		{"a method with too few arguments", `{{ now.Format }}`, `"Format" takes another number of arguments`},
		{"a method with a wrong argument", `{{ now.Format 1 }}`, `"Format" takes other arguments`},
		{"a method that has two results", `{{ now.Zone }}`, `"Zone" has not one result`},
		{"a method that fails", `{{ (semver "1.2.3").SetPrerelease .canary }}{{ (semver "1.2.3").SetPrerelease "ü" }}`, "the method cannot do this"},
		{"a method of what has none", `{{ .canary.String }}`, `"String" is asked of what is no dict`},
		{"range over a text", `{{ range .canary }}{{ end }}`, causeExecute},
		{"two variables for a number", `{{ range $i, $j := 3 }}{{ end }}`, causeExecute},
		{"an index beyond", `{{ index (list .canary) 7 }}`, causeExecute},
		{"an index that is a text", `{{ index (list 1) .canary }}`, causeExecute},
		{"an index of a number", `{{ index 1 .canary }}`, causeExecute},
		{"an index of nothing", `{{ index nil .canary }}`, causeExecute},
		{"a number as a key", `{{ index . 1 }}`, causeExecute},
		{"the length of a number", `{{ len 3 }}`, causeExecute},
		{"an order of lists", `{{ lt (list .canary) (list 1) }}`, causeExecute},
		{"an order of a text and a number", `{{ lt .canary 1 }}`, causeExecute},
		{"an equality of lists", `{{ eq (list .canary) (list .canary) }}`, `function "eq": these cannot be compared with each other`},
		{"an equality of a text and a number", `{{ eq .canary 1 }}`, `function "eq": these cannot be compared with each other`},
		{"an equality of one", `{{ eq .canary }}`, `function "eq": it takes at least two arguments`},
		{"a text that is called", `{{ call .canary }}`, causeExecute},
		{"a text where a number is needed", `{{ repeat .canary "x" }}`, causeExecute},
		{"a number where a text is needed", `{{ upper (len .canary) }}`, causeExecute},
		{"a list of another type", `{{ (genSelfSignedCert "x" (splitList "," .canary) nil 1).Cert }}`, causeExecute},
		{"the data where a dict is needed", `{{ hasKey . "canary" }}`, causeExecute},
		{"a literal of a wrong type", `{{ upper 1 }}`, causeExecute},
		{"too many arguments", `{{ upper .canary "x" }}`, causeExecute},
		{"too few arguments", `{{ replace .canary }}`, causeExecute},
		{"nil as a value", `{{ nil }}`, causeExecute},
		{"nil as an argument", `{{ upper nil }}`, causeExecute},
		{"fail", `{{ fail .canary }}`, `function "fail": the template gave up here; its message may hold a value, and is not shown`},
		{"a value that is large where it is large already", `{{ ` + large + ` }}`, "its output is larger than 1048576 bytes"},

		{"no base64", `{{ b64dec .canary }}`, `function "b64dec": the value is not base64`},
		{"no base32", `{{ b32dec .canary }}`, `function "b32dec": the value is not base32`},
		{"no hexadecimal", `{{ hexdec .canary }}`, `function "hexdec": the value is not hexadecimal`},
		{"no JSON", `{{ mustFromJson .canary }}{{ mustFromJson .json }}`, `function "mustFromJson": the value is not JSON`},
		{"no date", `{{ mustToDate "2006" .canary }}`, `function "mustToDate": the value is not a date of this layout`},
		{"no duration", `{{ mustDateModify .canary now }}`, `function "mustDateModify": it takes a duration such as -1.5h`},
		{"no version", `{{ semver .canary }}`, `function "semver": the value is not a semantic version`},
		{"no constraint", `{{ semverCompare .canary "1.0.0" }}`, `function "semverCompare": it takes a constraint and a semantic version`},
		{"no URL", `{{ urlParse (print "http://[" .canary) }}`, `function "urlParse": the value is not a URL`},
		{"no part of a URL", `{{ urlJoin (dict "host" (list .canary)) }}`, `function "urlJoin": it cannot work`},
		{"no regular expression", `{{ regexMatch (print "(" .canary) "x" }}`, `function "regexMatch": the regular expression is not valid`},
		{"no regular expression, must", `{{ mustRegexFind (print "(" .canary) "x" }}`, `the regular expression is not valid`},
		{"no encrypted text", `{{ decryptAES "x" .canary }}`, `function "decryptAES": the value cannot be decrypted with this password`},
		{"an encrypted text that is too short", `{{ decryptAES "x" "YQ==" }}`, `function "decryptAES": the value cannot be decrypted`},
		{"no list", `{{ first .canary }}`, `function "first": it cannot work with these arguments`},
		{"no list in a list function", `{{ append .canary 1 }}`, `function "append": it cannot work`},
		{"nothing in a list function", `{{ last nil }}`, `function "last": it cannot work`},
		{"no dict", `{{ dig .canary "b" 0 (dict .canary "x") }}`, `function "dig": it cannot work`},
		{"a user with a colon", `{{ htpasswd (print .canary ":") "x" }}`, `function "htpasswd": a user's name must not contain a colon`},
		{"a password that bcrypt does not take", `{{ bcrypt (repeat 10 .canary) }}`, `function "bcrypt": a password must not be longer than 72 bytes`},
		{"a type of key", `{{ genPrivateKey .canary }}`, `function "genPrivateKey": it makes keys of the types rsa, ecdsa and ed25519`},
		{"a type of key that takes minutes", `{{ genPrivateKey "dsa" }}`, `it makes keys of the types`},
		{"a type of password", `{{ derivePassword 1 .canary "p" "u" "s" }}`, `function "derivePassword": it makes passwords of the types`},
		{"an address that is none", `{{ genSelfSignedCertWithKey "x" (list .canary) nil 1 .leafKeyGood }}`, `function "genSelfSignedCertWithKey": the names, or the given key`},
		{"a key that is none", `{{ genCAWithKey "x" 1 .canary }}`, `function "genCAWithKey": the names, or the given key`},
		{"a CA that is none", `{{ genSignedCert "x" nil list 1 (buildCustomCert .canary .canary) }}`, `function "buildCustomCert": it takes a certificate`},
		{"numbers in a wrong order", `{{ randInt 5 (len .canary | sub 0) }}`, causeExecute},
		{"numbers in a wrong order, as ints", `{{ randInt 5 1 }}`, `function "randInt": the first number must be smaller`},
		{"a division by zero", `{{ div (len .canary) 0 }}`, `function "div": it cannot work`},
		{"a part out of range", `{{ substr 50 60 .canary }}`, `function "substr": it cannot work`},
		{"a part that ends before it begins", `{{ substr 3 1 .canary }}`, `function "substr": it cannot work`},
		{"a negative number of repetitions", `{{ repeat -1 .canary }}`, `function "repeat": the number must not be negative`},
		{"a negative number of spaces", `{{ indent -1 .canary }}`, `function "indent": the number must not be negative`},
		{"a negative number of bytes", `{{ randBytes -1 }}`, `function "randBytes": the number must be between 0 and 65536`},
		{"pieces of no length", `{{ chunk 0 (list .canary) }}`, `function "chunk": the number must be positive`},
		{"a fraction that is no number", `{{ addf "NaN" 1 }}`, `function "addf": it cannot work`},

		{"no PEM to filter", `{{ filterPEM "CERTIFICATE" .canary }}`, `function "filterPEM": the value is not PEM`},
		{"half of PEM to filter", `{{ filterPEM "CERTIFICATE" .pem }}`, `function "filterPEM": the value is not PEM`},
		{"no certificate", `{{ filterCertChain "leaf" .canary }}`, `function "filterCertChain": the value holds no PEM certificate`},
		{"a block that holds no certificate", `{{ certSANs .cert }}`, `function "certSANs": a PEM block of the type CERTIFICATE holds none`},
		{"a part that no chain has", `{{ filterCertChain .canary .chainGood }}`, `function "filterCertChain": it picks leaf, intermediate or root`},
		{"no certificate for an archive", `{{ pemToPkcs12 .canary .leafKeyGood }}`, `function "pemToPkcs12": the value holds no PEM certificate`},
		{"no key for an archive", `{{ pemToPkcs12 .leafGood .canary }}`, `function "pemToPkcs12": the value holds no PEM private key`},
		{"a broken key for an archive", `{{ fullPemToPkcs12 .chainGood .key }}`, `function "fullPemToPkcs12": the private key cannot be read`},
		{"a password that PKCS#12 does not have", `{{ pemToPkcs12Pass .leafGood .leafKeyGood "😀" }}`, `function "pemToPkcs12Pass": the archive cannot be made with this key and password`},
		{"a password that PKCS#12 does not have, for a trust store", `{{ pemTruststoreToPKCS12Pass .leafGood "😀" }}`, `the archive cannot be made with this password`},
		{"no certificate for a trust store", `{{ pemTruststoreToPKCS12 .canary }}`, `function "pemTruststoreToPKCS12": the value holds no PEM certificate`},
		{"no archive", `{{ pkcs12key .canary }}`, `function "pkcs12key": the value is not a PKCS#12 archive`},
		{"no archive of certificates", `{{ pkcs12cert .canary }}`, `function "pkcs12cert": the value is not a PKCS#12 archive`},
		{"an archive in base64", `{{ pkcs12cert (b64enc .p12Good) }}`, `function "pkcs12cert": the value is a PKCS#12 archive in base64: decode it`},
		{"a wrong password", `{{ pkcs12keyPass .canary .p12PassGood }}`, `function "pkcs12keyPass": the password is not that of the PKCS#12 archive`},
		{"a missing password", `{{ pkcs12cert .p12PassGood }}`, `function "pkcs12cert": the password is not that of the PKCS#12 archive`},
		{"no JWK", `{{ jwkPublicKeyPem .canary }}`, `function "jwkPublicKeyPem": the value is not a JSON Web Key`},
		{"no private JWK", `{{ jwkPrivateKeyPem .jwkPublicGood }}`, `function "jwkPrivateKeyPem": the JSON Web Key has no private key`},
		{"a symmetric JWK", `{{ jwkPrivateKeyPem (printf "{\"kty\":\"oct\",\"k\":%q}" (b64enc .canary)) }}`, `function "jwkPrivateKeyPem": the`},
		{"a scheme", `{{ rsaDecrypt .canary "SHA1" "x" .rsaKeyGood }}`, `function "rsaDecrypt": the scheme is None or RSA-OAEP`},
		{"a hash", `{{ rsaDecrypt "RSA-OAEP" .canary "x" .rsaKeyGood }}`, `function "rsaDecrypt": the hash is None, SHA1, SHA256 or SHA512`},
		{"no key to decrypt with", `{{ rsaDecrypt "RSA-OAEP" "SHA1" "x" .canary }}`, `function "rsaDecrypt": the value holds no PEM private key`},
		{"a key of another kind", `{{ rsaDecrypt "RSA-OAEP" "SHA1" "x" .leafKeyGood }}`, `function "rsaDecrypt": the private key is not one of RSA`},
		{"what was not encrypted", `{{ rsaDecrypt "RSA-OAEP" "SHA1" .canary .rsaKeyGood }}`, `function "rsaDecrypt": the value cannot be decrypted with this key, scheme and hash`},
	} {
		out, err := New(Options{}).Render("config.yaml", c.text, values)
		if err == nil {
			t.Errorf("%s: %s makes %.100q", c.why, c.text, out)

			continue
		}

		if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), `template "config.yaml"`) {
			t.Errorf("%s: err = %v; want %s", c.why, err, c.want)
		}

		if leaks(err) && !strings.Contains(c.text, "{ .canary 1 }") {
			t.Errorf("%s: the error holds the value: %v", c.why, err)
		}
	}
}

// An error of text/template ends with the value: one that reads as the end of
// another error must not be taken for it.
func TestValuesThatReadAsErrors(t *testing.T) {
	t.Parallel()

	for _, value := range []string{
		`function "` + canary + `" not defined`, `undefined variable "$canary"`, "wrong number of args for canary: want",
		"wrong type for value; expected canary; got canary", "error calling canary: ", "template: (root):7: canary",
	} {
		_, err := New(Options{}).Render("k", "{{ range .value }}{{ end }}", map[string]string{"value": value})
		if err == nil || leaks(err) {
			t.Errorf("%s: err = %v", value, err)
		}
	}
}

// The error of a function with an invalid argument does not contain the argument.
func TestNoFunctionRepeatsAValueInItsError(t *testing.T) {
	t.Parallel()

	e := New(Options{Timeout: time.Minute})
	values := map[string]string{"v": canary}
	fails := 0
	// Where a function takes text, many of the arguments below are the same one.
	called := map[string]bool{}

	for name, f := range catalog() {
		typ := reflect.TypeOf(f.call)

		for _, hostile := range []string{".v", "-1", "9223372036854775807", "nil", "(list .v)", "(dict .v .v)", "(list nil .v)", `(print "(" .v)`, `(print "%" .v)`, "(b64enc .v)", "now"} {
			// Keys take long, and fail in no more ways.
			if strings.HasPrefix(name, "gen") && hostile != ".v" {
				continue
			}

			for n := range 7 {
				args := make([]string, n)
				for i := range args {
					args[i] = suited(typ, i, hostile)
				}

				call := "{{ " + name + " " + strings.Join(args, " ") + " }}"
				if called[call] {
					continue
				}

				called[call] = true

				_, err := e.Render("k", call, values)
				if err == nil {
					continue
				}

				fails++

				if leaks(err) {
					t.Errorf("%s %s: the error holds the value: %v", name, args, err)
				}
			}
		}
	}

	if fails < 1000 {
		t.Errorf("only %d calls failed: the test provokes too little", fails)
	}
}

// suited is an argument of the type that a function takes at a place, the
// hostile one if that has it, or is to show what a wrong type does.
func suited(typ reflect.Type, i int, hostile string) string {
	if i >= typ.NumIn() || typ.IsVariadic() && i >= typ.NumIn()-1 {
		return hostile
	}

	number := strings.Trim(hostile, "-0123456789") == ""

	switch typ.In(i).Kind() {
	case reflect.String:
		if strings.HasPrefix(hostile, "(print") || strings.HasPrefix(hostile, "(b64enc") {
			return hostile
		}

		return ".v"
	case reflect.Int:
		if number {
			return hostile
		}

		return "1"
	case reflect.Slice:
		return "(list .v)"
	case reflect.Map:
		return "(dict .v .v)"
	default:
		return hostile
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()

	const doubled = `{{ $x := "1234567890123456" }}{{ range 100 }}{{ $x = %s }}{{ end }}`

	fixture := fixtures(t)

	for _, c := range []struct{ why, text, want string }{
		{"ranges in each other", `{{ range 1000000000 }}{{ range 1000000000 }}{{ end }}{{ end }}`, "takes longer than 300ms"},
		{"a range that only breaks and continues", `{{ range 1000000000 }}{{ range 2 }}{{ break }}{{ end }}{{ continue }}{{ end }}`, "takes longer than 300ms"},
		{"a range with a value per turn", `{{ range 1000000000 }}{{ $x := . }}{{ end }}`, "takes longer than 300ms"},
		{"a template that calls itself", `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`, "more than 100 levels deep"},
		{"templates that call each other", `{{ define "a" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ template "a" }}{{ end }}{{ template "a" }}`, "more than 100 levels deep"},
		{"a template that calls the whole", `{{ template "(root)" }}`, "more than 100 levels deep"},
		{"templates that double their calls", doubling(), "takes longer than 300ms"},
		{"output of text", `{{ range 1000000 }}` + strings.Repeat("x", 1000) + `{{ end }}`, "its output is larger than 1048576 bytes"},
		{"output of values", `{{ $x := repeat 1000 "x" }}{{ range 1000000 }}{{ $x }}{{ end }}`, "its output is larger than 1048576 bytes"},

		{"repeat", `{{ repeat 1000000000 "x" }}`, `function "repeat": its result would be too large`},
		{"repeat of much", `{{ repeat 9223372036854775807 (repeat 1000 "x") }}`, `function "repeat": its result would be too large`},
		{"until", `{{ until 1000000000 }}`, `function "until": its result would be too large`},
		{"until, downwards", `{{ until -1000000000 }}`, `function "until": its result would be too large`},
		{"untilStep that overflows", `{{ untilStep 0 9223372036854775807 9223372036854775806 }}`, `function "untilStep": a number is too large`},
		{"untilStep", `{{ untilStep 1000000000 0 -1 }}`, `function "untilStep": its result would be too large`},
		{"seq", `{{ seq 1000000000 }}`, `function "seq": its result would be too large`},
		{"seq of two", `{{ seq 0 1000000000 }}`, `function "seq": its result would be too large`},
		{"seq of three", `{{ seq 0 1 1000000000 }}`, `function "seq": its result would be too large`},
		{"indent", `{{ indent 1000000000 "x" }}`, `function "indent": its result would be too large`},
		{"nindent of lines", `{{ nindent 100000 (repeat 1000 "\n") }}`, `function "nindent": its result would be too large`},
		{"printf with a width", `{{ printf "` + strings.Repeat("%999999d", 20) + `" 1 }}`, `function "printf": its result would be too large`},
		{"printf with a precision", `{{ printf "` + strings.Repeat("%.999999d", 20) + `" 1 }}`, `function "printf": its result would be too large`},
		{"printf with a width in an argument", `{{ printf "` + strings.Repeat("%[1]*d", 20) + `" 999999 }}`, `function "printf": its result would be too large`},
		{"printf with an argument again and again", `{{ printf "` + strings.Repeat("%[1]s", 100) + `" (repeat 100000 "x") }}`, `function "printf": its result would be too large`},
		{"randAlpha", `{{ randAlpha 100000000 }}`, `function "randAlpha": the number must be between 0 and 65536`},
		{"randBytes", `{{ randBytes 100000000 }}`, `function "randBytes": the number must be between 0 and 65536`},
		{"join", `{{ join (repeat 100000 "x") (until 1000) }}`, `function "join": its result would be too large`},
		{"replace", `{{ replace "x" (repeat 10000 "y") (repeat 10000 "x") }}`, `function "replace": its result would be too large`},
		{"replace of nothing", `{{ replace "" (repeat 10000 "y") (repeat 10000 "x") }}`, `function "replace": its result would be too large`},
		{"wrapWith", `{{ wrapWith 1 (repeat 10000 "y") (repeat 10000 "x") }}`, `function "wrapWith": its result would be too large`},
		{"split", `{{ split "" (repeat 1000000 "x") }}`, `function "split": its result would be too large`},
		{"chunk", `{{ $l := until 200000 }}{{ chunk 1 $l }}`, `function "chunk": its result would be too large`},
		{"concat", `{{ $l := until 200000 }}{{ concat $l $l $l $l $l $l }}`, `function "concat": its result would be too large`},
		{"cat", `{{ $x := repeat 5000000 "x" }}{{ cat $x $x }}`, `function "cat": its arguments are too large`},
		{"print", `{{ $x := repeat 5000000 "x" }}{{ print $x $x }}`, `function "print": its arguments are too large`},
		{"regexReplaceAll", `{{ regexReplaceAll "x+" (repeat 1000 "xy") (repeat 10000 "z") }}`, `function "regexReplaceAll": its result would be too large`},
		{"regexReplaceAll with groups", `{{ regexReplaceAll "(?s).*" (repeat 1000000 "x") "$0$0$0$0$0$0$0$0$0$0" }}`, `function "regexReplaceAll": its result would be too large`},
		{"mustRegexReplaceAllLiteral", `{{ mustRegexReplaceAllLiteral "" (repeat 10000 "x") (repeat 10000 "z") }}`, `its result would be too large`},
		{"a regular expression that searches the rest at each character", `{{ regexFindAll "x*y|x" (repeat 1000000 "x") -1 | len }}`, `the regular expression takes too long on the text`},
		{"a regular expression with large repetitions", `{{ regexMatch "(((a{30}){30}b?){30}c?){30}" "x" }}`, `the regular expression is`},
		{"a long regular expression", `{{ regexMatch (repeat 5000 "x") "x" }}`, `a regular expression is longer than 4096 bytes`},
		{"a large regular expression on a long text", `{{ regexMatch "(abcdefghijklmnopqrst){500}" (repeat 5000000 "x") }}`, `the regular expression is too large for the text`},
		{"uniq", `{{ uniq (until 5000) }}`, `function "uniq": the list is too long`},
		{"without", `{{ without (until 200000) ` + strings.Repeat("1 ", 50) + ` }}`, `function "without": the list is too long`},
		{"trimAll", `{{ trimAll (repeat 100000 "ü") (repeat 100000 "ü") }}`, `function "trimAll": an argument is longer than 1024 bytes`},
		{"mulf", `{{ mulf ` + strings.Repeat("1.1 ", 200) + ` }}`, `function "mulf": it takes at most 100 arguments`},
		{"fromJson", `{{ fromJson (repeat 600000 "[]") }}`, `function "fromJson": an argument is longer than 1048576 bytes`},
		{"semver", `{{ semver (repeat 300 "1") }}`, `function "semver": an argument is longer than 256 bytes`},
		{"a long private key", `{{ genCAWithKey "x" 1 (repeat 20000 "x") }}`, `function "genCAWithKey": an argument is longer than 16384 bytes`},
		{"a long private key of a CA", `{{ genSignedCert "x" nil list 1 (buildCustomCert (b64enc .leaf) (b64enc (print .leafKey (repeat 20000 "x")))) }}`, `function "genSignedCert": a private key is longer`},
		{"keys that take time", `{{ range 1000 }}{{ $x := genPrivateKey "rsa" }}{{ end }}`, "takes longer than 300ms"},
		{"hashes that take time", `{{ range 1000 }}{{ $x := bcrypt "x" }}{{ end }}`, "takes longer than 300ms"},

		{"a text that doubles", fmt.Sprintf(doubled, "print $x $x"), "too large"},
		{"a text that doubles in printf", fmt.Sprintf(doubled, `printf "%s%s" $x $x`), "too large"},
		{"a text that doubles in a layout", fmt.Sprintf(doubled, "now.Format $x"), "other arguments"},
		{"a text that doubles in a layout of date", fmt.Sprintf(doubled, `date $x (toDate "2006-01-02" "2024-12-12")`), "too large"},
		{"a text that grows in quotes", fmt.Sprintf(doubled, `quote $x`), "too large"},
		{"a text that grows in base64", fmt.Sprintf(doubled, `b64enc $x`), "too large"},
		{"a list that doubles", `{{ $l := list 1 }}{{ range 100 }}{{ $l = concat $l $l }}{{ end }}`, `function "concat": its result`},
		{"a list that grows", `{{ $l := list }}{{ range 1000000 }}{{ $l = append $l . }}{{ end }}`, "functions have made more than"},
		{"a list of lists that doubles", `{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ $l }}`, "a value is too large to be printed, or nested too deeply"},
		{"a list of lists that doubles, in JSON", `{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ toJson $l }}`, `function "toJson": its arguments are too large, or nested too deeply`},
		{"a deep list", `{{ $l := list 1 }}{{ range 1000 }}{{ $l = list $l }}{{ end }}{{ $l }}`, "a value is too large to be printed, or nested too deeply"},
		{"a deep list that is copied", `{{ $l := list 1 }}{{ range 1000 }}{{ $l = list $l }}{{ end }}{{ $x := deepCopy $l }}`, `function "deepCopy": its arguments are too large, or nested too deeply`},
		{"a dict that grows", `{{ $d := dict }}{{ range 1000000 }}{{ $_ := set $d (print .) . }}{{ end }}`, "takes longer than 300ms"},
		{"a dict that holds itself", `{{ $d := dict }}{{ $_ := set $d "a" $d }}`, `function "set": the dict would hold itself`},
		{"a dict that holds itself in a list", `{{ $d := dict }}{{ $_ := set $d "a" (list (dict "b" $d)) }}`, `function "set": the dict would hold itself`},
		{"a dict that holds another twice, and so on", `{{ $d := dict }}{{ range 60 }}{{ $d = dict "a" $d "b" $d }}{{ end }}{{ merge dict $d }}`, `function "merge": its arguments are too large, or nested too deeply`},
		{"an equality of what is large", `{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ eq $l $l }}`, `function "eq": these cannot be compared`},
		{"values that are made and dropped", `{{ range 1000000 }}{{ $x := repeat 1000000 "x" }}{{ end }}`, "functions have made more than 67108864 bytes"},
	} {
		// The limit of size must be reached before that of time, also on a slow
		// machine.
		timeout := time.Minute
		if strings.Contains(c.want, "takes ") {
			timeout = 300 * time.Millisecond
		}

		e := New(Options{Timeout: timeout})
		start := time.Now()

		out, err := e.Render("k", c.text, fixture)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.100s makes %.100q, %v; want %s", c.why, c.text, out, err, c.want)
		}

		// One function call, on a slow machine with the race detector.
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %s", c.why, took)
		}
	}
}

// doubling templates call each other twice each, far fewer levels deep than
// they may, and as often as atoms are in a man.
func doubling() string {
	var text strings.Builder

	const levels = 90
	for i := range levels {
		fmt.Fprintf(&text, `{{ define "%d" }}{{ template "%d" }}{{ template "%d" }}{{ end }}`, i, i+1, i+1)
	}

	fmt.Fprintf(&text, `{{ define "%d" }}{{ end }}{{ template "0" }}`, levels)

	return text.String()
}

func TestYAMLThatRefersToItself(t *testing.T) {
	t.Parallel()

	got, err := New(Options{}).Render("k", `{{ keys (fromYaml "`+laughs()+`") }}`, nil)
	if err != nil || string(got) != "[Error]" {
		t.Errorf("got %.100q, %v", got, err)
	}
}

// laughs is a YAML document of few bytes and a billion values.
func laughs() string {
	var text strings.Builder

	text.WriteString(`a0: &a0 [x,x,x,x,x,x,x,x,x]\n`)

	for i := range 9 {
		fmt.Fprintf(&text, `a%d: &a%d [%s*a%d]\n`, i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 8), i)
	}

	return text.String()
}

func TestMergeOfWhatIsSharedEnds(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		`{{ $d := dict "a" dict "b" (dict "a" dict) }}{{ $_ := merge $d (dict "a" $d "b" $d) }}{{ len $d }}`,
		`{{ $d := dict "a" dict "b" (dict "a" dict) }}{{ $_ := mergeOverwrite $d (dict "a" $d "b" $d) }}{{ $_ = mergeOverwrite $d $d }}{{ len $d }}`,
	} {
		if out, err := New(Options{}).Render("k", text, nil); err != nil || string(out) != "2" {
			t.Errorf("%s makes %q, %v", text, out, err)
		}
	}
}

func TestMaxOutputIsExact(t *testing.T) {
	t.Parallel()

	e := New(Options{MaxOutput: 4})

	for text, ok := range map[string]bool{"abcd": true, "abcde": false, `ab{{ "cd" }}`: true, `ab{{ "cde" }}`: false} {
		if _, err := e.Render("k", text, nil); (err == nil) != ok {
			t.Errorf("%s: err = %v", text, err)
		}
	}
}

func TestMemoryStaysBounded(t *testing.T) { //nolint:paralleltest // it measures the process
	var before, after runtime.MemStats

	e := New(Options{})

	for _, text := range []string{
		`{{ $x := "x" }}{{ range 1000 }}{{ $x = print $x $x }}{{ end }}`,
		`{{ $l := list }}{{ range 1000000 }}{{ $l = append $l . }}{{ end }}`,
		`{{ range 1000000 }}{{ $x := repeat 1000000 "x" }}{{ end }}`,
		`{{ printf "` + strings.Repeat("%[1]*[1]d", 100) + `" 999999 }}`,
	} {
		runtime.ReadMemStats(&before)

		if _, err := e.Render("k", text, nil); err == nil {
			t.Errorf("%s renders", text)
		}

		runtime.ReadMemStats(&after)

		if made := after.TotalAlloc - before.TotalAlloc; made > 8*maxProduced {
			t.Errorf("%s allocates %d MiB", text, made>>20)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	e := New(Options{})
	values := map[string]string{"user": "me", "password": "x"}

	for b.Loop() {
		if _, err := e.Render("k", `postgres://{{ .user | urlquery }}:{{ .password | urlquery }}@host/db`, values); err != nil {
			b.Fatal(err)
		}
	}
}
