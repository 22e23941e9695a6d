package template

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/sprig/v3"
	"github.com/google/go-cmp/cmp"
)

func TestEveryFunctionOfSprigIsAllowedOrRefused(t *testing.T) {
	t.Parallel()

	listed := slices.Clone(allowed())
	for _, r := range refused() {
		listed = append(listed, r.name)

		if r.why == "" {
			t.Errorf("the reason why %s is refused is missing", r.name)
		}
	}

	slices.Sort(listed)

	if diff := cmp.Diff(slices.Sorted(maps.Keys(sprig.TxtFuncMap())), listed); diff != "" {
		t.Errorf("sprig's functions differ from the lists: look at what is new, and put it into one (-sprig +lists):\n%s", diff)
	}
}

func TestListsAreSorted(t *testing.T) {
	t.Parallel()

	for name, list := range map[string][]string{"allowed": allowed(), "builtin": builtin(), "own": own()} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("%s is not sorted, or names a function twice", name)
		}
	}
}

func TestCatalogHoldsTheListsAndNothingElse(t *testing.T) {
	t.Parallel()

	// A function without a bound neither formats nor copies its arguments.
	unwatched := []string{"and", "call", "ge", "gt", "index", "le", "len", "lt", "not", "or"}

	want := slices.Concat(allowed(), own(), builtin())
	slices.Sort(want)
	want = slices.DeleteFunc(slices.Compact(want), func(name string) bool { return slices.Contains(unwatched, name) })

	got := slices.Sorted(maps.Keys(catalog()))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}

	for name, f := range catalog() {
		if f.call == nil {
			t.Errorf("%s has no function", name)
		}
	}
}

func TestRefusedFunctionsSayWhy(t *testing.T) {
	t.Parallel()

	for _, r := range refused() {
		err := New(Options{}).Check("k", "\n{{ "+r.name+` "HOME" }}`)
		if want := `template "k", line 2: the function "` + r.name + `" is not available: ` + r.why; err == nil || err.Error() != want {
			t.Errorf("err = %v; want %s", err, want)
		}
	}
}

// call of a function, and what it gives: want, or what matches.
type call struct{ function, why, text, want, matches string }

// calls has a case of every function at least.
func calls() []call {
	const (
		when   = `(toDate "2006-01-02 15:04:05 MST" "2024-02-03 04:05:06 UTC")`
		nested = `(dict "a" (dict "b" 1))`
	)

	return []call{
		{function: "abbrev", why: "cuts with an ellipsis", text: `{{ abbrev 5 "hello world" }}`, want: "he..."},
		{function: "abbrevboth", why: "cuts on both sides", text: `{{ abbrevboth 5 10 "1234 5678 9123" }}`, want: "...5678..."},
		{function: "add", why: "sums", text: `{{ add 1 2 3 }}`, want: "6"},
		{function: "add", why: "takes numbers in text", text: `{{ add .number 1 }}`, want: "43"},
		{function: "add1", why: "adds one", text: `{{ add1 .number }}`, want: "43"},
		{function: "add1f", why: "adds one to a fraction", text: `{{ add1f 1.5 }}`, want: "2.5"},
		{function: "addf", why: "has no error of binary fractions", text: `{{ addf 0.1 0.2 }}`, want: "0.3"},
		{function: "adler32sum", why: "is that of the algorithm", text: `{{ adler32sum "abc" }}`, want: "38600999"},
		{function: "ago", why: "is the time since", text: `{{ ago now }}`, want: "0s"},
		{function: "all", why: "sees an empty value", text: `{{ all 1 "" }} {{ all 1 2 }}`, want: "false true"},
		{function: "and", why: "gives the first empty value", text: `{{ and 1 0 2 }}`, want: "0"},
		{function: "and", why: "does not look at what comes after", text: `{{ and false (fail "not reached") }}`, want: "false"},
		{function: "any", why: "sees a value that is not empty", text: `{{ any 0 "" }} {{ any 0 2 }}`, want: "false true"},
		{function: "append", why: "adds to a copy", text: `{{ $l := list 1 }}{{ append $l 2 }} {{ $l }}`, want: "[1 2] [1]"},
		{function: "atoi", why: "reads a number", text: `{{ atoi .number | kindOf }} {{ atoi "x" }}`, want: "int 0"},
		{function: "b32dec", why: "decodes", text: `{{ b32dec "NBUQ====" }}`, want: "hi"},
		{function: "b32enc", why: "encodes", text: `{{ b32enc "hi" }}`, want: "NBUQ===="},
		{function: "b64dec", why: "decodes", text: `{{ b64dec "aGk=" }}`, want: "hi"},
		{function: "b64enc", why: "encodes", text: `{{ b64enc "hi" }}`, want: "aGk="},
		{function: "base", why: "is the last part of a path", text: `{{ base "a/b.c" }}`, want: "b.c"},
		{function: "bcrypt", why: "hashes at the usual cost", text: `{{ bcrypt "x" }}`, matches: `^\$2a\$10\$.{53}$`},
		{function: "biggest", why: "is max", text: `{{ biggest 1 3 2 }}`, want: "3"},
		{function: "buildCustomCert", why: "takes what it is given apart", text: `{{ $c := buildCustomCert (b64enc .leaf) (b64enc .leafKey) }}{{ and (eq $c.Cert .leaf) (eq $c.Key .leafKey) }}`, want: "true"},
		{function: "call", why: "is there, but templates have no functions as values", text: `{{ if false }}{{ call . }}{{ end }}ok`, want: "ok"},
		{function: "camelcase", why: "begins with a capital", text: `{{ camelcase "http_server" }}`, want: "HttpServer"},
		{function: "cat", why: "puts spaces between", text: `{{ cat "a" 1 nil "b" }}`, want: "a 1 b"},
		{function: "ceil", why: "rounds up", text: `{{ ceil 1.2 }}`, want: "2"},
		{function: "certSANs", why: "lists names, addresses, mail and URIs", text: `{{ certSANs .leaf | join "," }}`, want: "a.example,b.example,192.0.2.1,me@a.example,spiffe://a.example/x"},
		{function: "certSANs", why: "takes what the filters give", text: `{{ index (.chain | filterPEM "CERTIFICATE" | filterCertChain "leaf" | certSANs) 0 }}`, want: "a.example"},
		{function: "chunk", why: "cuts a list into pieces", text: `{{ chunk 2 (list 1 2 3) }}`, want: "[[1 2] [3]]"},
		{function: "clean", why: "simplifies a path", text: `{{ clean "a/../b" }}`, want: "b"},
		{function: "coalesce", why: "is the first that is not empty", text: `{{ coalesce "" 0 "x" }}`, want: "x"},
		{function: "compact", why: "leaves out what is empty", text: `{{ compact (list 1 "" 2) }}`, want: "[1 2]"},
		{function: "concat", why: "joins lists", text: `{{ concat (list 1) (list 2 3) }}`, want: "[1 2 3]"},
		{function: "contains", why: "finds", text: `{{ contains "b" "abc" }}`, want: "true"},
		{function: "date", why: "formats", text: `{{ date "2006" ` + when + ` }}`, want: "2024"},
		{function: "dateInZone", why: "formats in a zone", text: `{{ dateInZone "15:04" ` + when + ` "Asia/Tokyo" }}`, want: "13:05"},
		{function: "dateModify", why: "moves a time", text: `{{ dateModify "-24h" ` + when + ` | date "2006-01-02" }}`, want: "2024-02-02"},
		{function: "date_in_zone", why: "is dateInZone", text: `{{ date_in_zone "15:04" ` + when + ` "UTC" }}`, want: "04:05"},
		{function: "date_modify", why: "is dateModify", text: `{{ date_modify "24h" ` + when + ` | date "2006-01-02" }}`, want: "2024-02-04"},
		{function: "decryptAES", why: "is the inverse of encryptAES", text: `{{ "text" | encryptAES "key" | decryptAES "key" }}`, want: "text"},
		{function: "deepCopy", why: "copies what is inside", text: `{{ $d := ` + nested + ` }}{{ $c := deepCopy $d }}{{ $_ := set $c.a "b" 2 }}{{ $d.a.b }}{{ $c.a.b }}`, want: "12"},
		{function: "deepEqual", why: "compares what is inside", text: `{{ deepEqual (list 1 (list 2)) (list 1 (list 2)) }}`, want: "true"},
		{function: "default", why: "takes the place of what is empty", text: `{{ "" | default "x" }}{{ "y" | default "x" }}`, want: "xy"},
		{function: "derivePassword", why: "is the Master Password algorithm", text: `{{ derivePassword 1 "long" "password" "user" "example.com" }}`, want: "ZedaFaxcZaso9*"},
		{function: "dict", why: "pairs its arguments", text: `{{ (dict "a" 1 "b" 2).b }}`, want: "2"},
		{function: "dig", why: "follows keys", text: `{{ dig "a" "b" 0 ` + nested + ` }} {{ dig "a" "c" 0 ` + nested + ` }}`, want: "1 0"},
		{function: "dir", why: "is all but the last part of a path", text: `{{ dir "a/b/c" }}`, want: "a/b"},
		{function: "div", why: "divides whole numbers", text: `{{ div 7 2 }}`, want: "3"},
		{function: "divf", why: "divides fractions", text: `{{ divf 7 2 }}`, want: "3.5"},
		{function: "duration", why: "formats seconds", text: `{{ duration "95" }}`, want: "1m35s"},
		{function: "durationRound", why: "keeps the largest unit", text: `{{ durationRound "2h10m5s" }}`, want: "2h"},
		{function: "empty", why: "sees what is empty", text: `{{ empty "" }} {{ empty 1 }}`, want: "true false"},
		{function: "encryptAES", why: "gives the vector and one block in base64", text: `{{ encryptAES "key" "text" | b64dec | len }}`, want: "32"},
		{function: "eq", why: "compares with any of the others", text: `{{ eq .number "1" "42" }} {{ eq 1 2 }}`, want: "true false"},
		{function: "ext", why: "is the extension", text: `{{ ext "a/b.c" }}`, want: ".c"},
		{function: "fail", why: "is an error", text: `{{ if false }}{{ fail "x" }}{{ end }}ok`, want: "ok"},
		{function: "filterCertChain", why: "picks the leaf", text: `{{ eq (filterCertChain "leaf" .chain) .leaf }}`, want: "true"},
		{function: "filterCertChain", why: "picks what is between", text: `{{ eq (filterCertChain "intermediate" .chain) .intermediate }}`, want: "true"},
		{function: "filterCertChain", why: "picks the root", text: `{{ eq (filterCertChain "root" .chain) .root }}`, want: "true"},
		{function: "filterPEM", why: "keeps the blocks of a type", text: `{{ eq (print .leafKey .leaf .root | filterPEM "certificate") (print .leaf .root) }}`, want: "true"},
		{function: "first", why: "is the first", text: `{{ first (list 1 2) }}`, want: "1"},
		{function: "float64", why: "reads a fraction", text: `{{ float64 "1.5" }}`, want: "1.5"},
		{function: "floor", why: "rounds down", text: `{{ floor 1.8 }}`, want: "1"},
		{function: "fromJson", why: "reads a document", text: `{{ (fromJson .json).a }} {{ fromJson "{" }}`, want: "1 <no value>"},
		{function: "fromYaml", why: "reads a document", text: `{{ (fromYaml "a: [1, x]").a }}`, want: "[1 x]"},
		{function: "fromYaml", why: "returns an error in the dict", text: `{{ (fromYaml "[").Error }}`, want: "the value is not a YAML mapping"},
		{function: "fullPemToPkcs12", why: "keeps the chain", text: `{{ eq (fullPemToPkcs12 .chain .leafKey | b64dec | pkcs12cert) .chain }}`, want: "true"},
		{function: "fullPemToPkcs12Pass", why: "keeps the chain under a password", text: `{{ eq (fullPemToPkcs12Pass .chain .leafKey "x" | b64dec | pkcs12certPass "x") .chain }}`, want: "true"},
		{function: "ge", why: "compares", text: `{{ ge 2 2 }}`, want: "true"},
		{function: "genCA", why: "makes a certificate and its key", text: `{{ $c := genCA "x" 1 }}{{ $c.Cert }}{{ $c.Key }}`, matches: `(?s)^-----BEGIN CERTIFICATE.*-----BEGIN RSA PRIVATE KEY`},
		{function: "genCAWithKey", why: "uses the key", text: `{{ $c := genCAWithKey "x" 1 .leafKey }}{{ fullPemToPkcs12 $c.Cert .leafKey | b64dec | pkcs12key | eq .leafKey }}`, want: "true"},
		{function: "genPrivateKey", why: "makes a key of a type", text: `{{ genPrivateKey "ed25519" }}`, matches: `^-----BEGIN PRIVATE KEY`},
		{function: "genSelfSignedCert", why: "has the names", text: `{{ (genSelfSignedCert "x" (list "192.0.2.1") (list "a.example") 1).Cert | certSANs | join "," }}`, want: "a.example,192.0.2.1"},
		{function: "genSelfSignedCertWithKey", why: "has the names", text: `{{ (genSelfSignedCertWithKey "x" nil (list "a.example") 1 .leafKey).Cert | certSANs | join "," }}`, want: "a.example"},
		{function: "genSignedCert", why: "is signed by the CA", text: `{{ $ca := genCAWithKey "ca" 1 .leafKey }}{{ $c := genSignedCert "x" nil list 1 $ca }}{{ eq (print $c.Cert $ca.Cert | filterCertChain "leaf") $c.Cert }}`, want: "true"},
		{function: "genSignedCertWithKey", why: "is signed by the CA", text: `{{ $ca := genCAWithKey "ca" 1 .leafKey }}{{ $c := genSignedCertWithKey "x" nil list 1 $ca .leafKey }}{{ eq (print $c.Cert $ca.Cert | filterCertChain "root") $ca.Cert }}`, want: "true"},
		{function: "get", why: "is the value of a key, or nothing", text: `{{ get (dict "a" 1) "a" }}{{ get dict "b" }}`, want: "1"},
		{function: "gt", why: "compares", text: `{{ gt 2 2 }}`, want: "false"},
		{function: "has", why: "finds in a list", text: `{{ has 2 (list 1 2) }}`, want: "true"},
		{function: "hasKey", why: "finds a key", text: `{{ hasKey (dict "a" 1) "a" }}`, want: "true"},
		{function: "hasPrefix", why: "compares the beginning", text: `{{ hasPrefix "a" "abc" }}`, want: "true"},
		{function: "hasSuffix", why: "compares the end", text: `{{ hasSuffix "a" "abc" }}`, want: "false"},
		{function: "hello", why: "greets", text: `{{ hello }}`, want: "Hello!"},
		{function: "hexdec", why: "decodes", text: `{{ hexdec "6869" }}`, want: "hi"},
		{function: "html", why: "escapes", text: `{{ html "<" }}`, want: "&lt;"},
		{function: "htmlDate", why: "is year, month and day", text: `{{ htmlDate ` + when + ` }}`, want: "2024-02-03"},
		{function: "htmlDateInZone", why: "is year, month and day in a zone", text: `{{ htmlDateInZone ` + when + ` "UTC" }}`, want: "2024-02-03"},
		{function: "htpasswd", why: "is a user and a hash", text: `{{ htpasswd "me" "x" }}`, matches: `^me:\$2a\$10\$.{53}$`},
		{function: "indent", why: "indents each line", text: `{{ indent 2 "a\nb" }}`, want: "  a\n  b"},
		{function: "index", why: "finds a key that is no name", text: `{{ index . "with-dash" }}`, want: "dashed"},
		{function: "index", why: "goes through levels", text: `{{ index (list 1 (list 2 3)) 1 0 }}`, want: "2"},
		{function: "initial", why: "is all but the last", text: `{{ initial (list 1 2 3) }}`, want: "[1 2]"},
		{function: "initials", why: "takes the first letters", text: `{{ initials "First Try" }}`, want: "FT"},
		{function: "int", why: "reads a number", text: `{{ int .number | kindOf }}`, want: "int"},
		{function: "int64", why: "reads a number", text: `{{ int64 .number | kindOf }}`, want: "int64"},
		{function: "isAbs", why: "knows a path from the root", text: `{{ isAbs "/a" }}`, want: "true"},
		{function: "join", why: "puts a text between", text: `{{ join "-" (list 1 "b") }}`, want: "1-b"},
		{function: "js", why: "escapes", text: `{{ js "'" }}`, want: `\'`},
		{function: "jwkPrivateKeyPem", why: "is PKCS#8", text: `{{ eq (jwkPrivateKeyPem .jwk) .leafKey }}`, want: "true"},
		{function: "jwkPublicKeyPem", why: "is PKIX", text: `{{ eq (jwkPublicKeyPem .jwkPublic) .leafPublic }}`, want: "true"},
		{function: "jwkPublicKeyPem", why: "takes a private key as well", text: `{{ eq (jwkPublicKeyPem .jwk) .leafPublic }}`, want: "true"},
		{function: "kebabcase", why: "puts dashes", text: `{{ kebabcase "HttpServer" }}`, want: "http-server"},
		{function: "keys", why: "has the same order each time", text: `{{ keys (dict "c" 1 "a" 1 "b" 1) (dict "A" 1) }}`, want: "[a b c A]"},
		{function: "kindIs", why: "compares the kind", text: `{{ kindIs "slice" list }}`, want: "true"},
		{function: "kindOf", why: "names the kind", text: `{{ kindOf dict }}`, want: "map"},
		{function: "last", why: "is the last", text: `{{ last (list 1 2) }}`, want: "2"},
		{function: "le", why: "compares", text: `{{ le 1 2 }}`, want: "true"},
		{function: "len", why: "counts", text: `{{ len "abc" }}`, want: "3"},
		{function: "list", why: "holds its arguments", text: `{{ list 1 "b" }}`, want: "[1 b]"},
		{function: "lower", why: "makes small letters", text: `{{ lower "ABC" }}`, want: "abc"},
		{function: "lt", why: "compares", text: `{{ lt 1 2 }}`, want: "true"},
		{function: "max", why: "is the largest", text: `{{ max 1 3 2 }}`, want: "3"},
		{function: "maxf", why: "is the largest fraction", text: `{{ maxf 1.5 2.5 }}`, want: "2.5"},
		{function: "merge", why: "keeps what is there", text: `{{ merge (dict "a" 1) (dict "a" 2 "b" 3) }}`, want: "map[a:1 b:3]"},
		{function: "mergeOverwrite", why: "overwrites what is there", text: `{{ mergeOverwrite (dict "a" 1) (dict "a" 2 "b" 3) }}`, want: "map[a:2 b:3]"},
		{function: "min", why: "is the smallest", text: `{{ min 3 1 2 }}`, want: "1"},
		{function: "minf", why: "is the smallest fraction", text: `{{ minf 1.5 2.5 }}`, want: "1.5"},
		{function: "mod", why: "is the rest", text: `{{ mod 7 2 }}`, want: "1"},
		{function: "mul", why: "multiplies", text: `{{ mul 2 3 4 }}`, want: "24"},
		{function: "mulf", why: "multiplies fractions", text: `{{ mulf 1.5 2 }}`, want: "3"},
		{function: "mustAppend", why: "is append", text: `{{ mustAppend (list 1) 2 }}`, want: "[1 2]"},
		{function: "mustChunk", why: "is chunk", text: `{{ mustChunk 2 (list 1 2 3) }}`, want: "[[1 2] [3]]"},
		{function: "mustCompact", why: "is compact", text: `{{ mustCompact (list 1 "" 2) }}`, want: "[1 2]"},
		{function: "mustDateModify", why: "is dateModify", text: `{{ mustDateModify "24h" ` + when + ` | date "2006-01-02" }}`, want: "2024-02-04"},
		{function: "mustDeepCopy", why: "is deepCopy", text: `{{ mustDeepCopy ` + nested + ` }}`, want: "map[a:map[b:1]]"},
		{function: "mustFirst", why: "is first", text: `{{ mustFirst (list 1 2) }}`, want: "1"},
		{function: "mustFromJson", why: "is fromJson", text: `{{ (mustFromJson .json).a }}`, want: "1"},
		{function: "mustHas", why: "is has", text: `{{ mustHas 3 (list 1 2) }}`, want: "false"},
		{function: "mustInitial", why: "is initial", text: `{{ mustInitial (list 1 2 3) }}`, want: "[1 2]"},
		{function: "mustLast", why: "is last", text: `{{ mustLast (list 1 2) }}`, want: "2"},
		{function: "mustMerge", why: "is merge", text: `{{ mustMerge (dict "a" 1) (dict "a" 2 "b" 3) }}`, want: "map[a:1 b:3]"},
		{function: "mustMergeOverwrite", why: "is mergeOverwrite", text: `{{ mustMergeOverwrite (dict "a" 1) (dict "a" 2) }}`, want: "map[a:2]"},
		{function: "mustPrepend", why: "is prepend", text: `{{ mustPrepend (list 1) 2 }}`, want: "[2 1]"},
		{function: "mustPush", why: "is append", text: `{{ mustPush (list 1) 2 }}`, want: "[1 2]"},
		{function: "mustRegexFind", why: "is regexFind", text: `{{ mustRegexFind "b." "abcbd" }}`, want: "bc"},
		{function: "mustRegexFindAll", why: "is regexFindAll", text: `{{ mustRegexFindAll "b." "abcbd" -1 }}`, want: "[bc bd]"},
		{function: "mustRegexMatch", why: "is regexMatch", text: `{{ mustRegexMatch "^a" "abc" }}`, want: "true"},
		{function: "mustRegexReplaceAll", why: "is regexReplaceAll", text: `{{ mustRegexReplaceAll "a(.)" "abac" "${1}x" }}`, want: "bxcx"},
		{function: "mustRegexReplaceAllLiteral", why: "is regexReplaceAllLiteral", text: `{{ mustRegexReplaceAllLiteral "a(.)" "abac" "$1" }}`, want: "$1$1"},
		{function: "mustRegexSplit", why: "is regexSplit", text: `{{ mustRegexSplit "b+" "abbcbd" -1 }}`, want: "[a c d]"},
		{function: "mustRest", why: "is rest", text: `{{ mustRest (list 1 2 3) }}`, want: "[2 3]"},
		{function: "mustReverse", why: "is reverse", text: `{{ mustReverse (list 1 2) }}`, want: "[2 1]"},
		{function: "mustSlice", why: "is slice", text: `{{ mustSlice (list 1 2 3) 1 2 }}`, want: "[2]"},
		{function: "mustToDate", why: "is toDate", text: `{{ mustToDate "2006-01-02" "2024-02-03" | date "2006" }}`, want: "2024"},
		{function: "mustToJson", why: "is toJson", text: `{{ mustToJson (dict "a" (list 1)) }}`, want: `{"a":[1]}`},
		{function: "mustToPrettyJson", why: "is toPrettyJson", text: `{{ mustToPrettyJson (dict "a" 1) }}`, want: "{\n  \"a\": 1\n}"},
		{function: "mustToRawJson", why: "is toRawJson", text: `{{ mustToRawJson "<" }}`, want: `"<"`},
		{function: "mustUniq", why: "is uniq", text: `{{ mustUniq (list 1 1 2) }}`, want: "[1 2]"},
		{function: "mustWithout", why: "is without", text: `{{ mustWithout (list 1 2 3) 2 }}`, want: "[1 3]"},
		{function: "must_date_modify", why: "is dateModify", text: `{{ must_date_modify "24h" ` + when + ` | date "2006-01-02" }}`, want: "2024-02-04"},
		{function: "ne", why: "compares", text: `{{ ne .number "1" }}`, want: "true"},
		{function: "nindent", why: "begins with a new line", text: `{{ nindent 2 "a" }}`, want: "\n  a"},
		{function: "nospace", why: "leaves out spaces", text: `{{ nospace "a b c" }}`, want: "abc"},
		{function: "not", why: "negates", text: `{{ not "" }}`, want: "true"},
		{function: "now", why: "is this year", text: `{{ now.Year }}`, matches: `^20\d\d$`},
		{function: "omit", why: "leaves out keys", text: `{{ omit (dict "a" 1 "b" 2) "a" }}`, want: "map[b:2]"},
		{function: "or", why: "gives the first that is not empty", text: `{{ or "" "x" }}`, want: "x"},
		{function: "osBase", why: "is the last part of a path", text: `{{ osBase "/a/b" }}`, want: "b"},
		{function: "osClean", why: "simplifies a path", text: `{{ osClean "/a/../b" }}`, want: "/b"},
		{function: "osDir", why: "is all but the last part of a path", text: `{{ osDir "/a/b" }}`, want: "/a"},
		{function: "osExt", why: "is the extension", text: `{{ osExt "/a/b.c" }}`, want: ".c"},
		{function: "osIsAbs", why: "knows a path from the root", text: `{{ osIsAbs "a" }}`, want: "false"},
		{function: "pemToPkcs12", why: "archives a certificate and its key", text: `{{ $p := pemToPkcs12 .leaf .leafKey | b64dec }}{{ and (eq (pkcs12cert $p) .leaf) (eq (pkcs12key $p) .leafKey) }}`, want: "true"},
		{function: "pemToPkcs12Pass", why: "archives under a password", text: `{{ eq (pemToPkcs12Pass .leaf .leafKey "x" | b64dec | pkcs12keyPass "x") .leafKey }}`, want: "true"},
		{function: "pemTruststoreToPKCS12", why: "archives certificates without a key", text: `{{ eq (pemTruststoreToPKCS12 .root | b64dec | pkcs12cert) .root }}`, want: "true"},
		{function: "pemTruststoreToPKCS12Pass", why: "archives certificates under a password", text: `{{ eq (pemTruststoreToPKCS12Pass .chain "x" | b64dec | pkcs12certPass "x") .chain }}`, want: "true"},
		{function: "pick", why: "keeps keys", text: `{{ pick (dict "a" 1 "b" 2) "a" }}`, want: "map[a:1]"},
		{function: "pkcs12cert", why: "reads an archive without a password", text: `{{ eq (pkcs12cert .p12) .chain }}`, want: "true"},
		{function: "pkcs12certPass", why: "takes the password first", text: `{{ eq (.p12Pass | pkcs12certPass "123") .chain }}`, want: "true"},
		{function: "pkcs12key", why: "reads an archive without a password", text: `{{ eq (pkcs12key .p12) .leafKey }}`, want: "true"},
		{function: "pkcs12keyPass", why: "takes the password first", text: `{{ eq (.p12Pass | pkcs12keyPass "123") .leafKey }}`, want: "true"},
		{function: "pluck", why: "takes a key out of each", text: `{{ pluck "a" (dict "a" 1) (dict "b" 2) (dict "a" 3) }}`, want: "[1 3]"},
		{function: "plural", why: "chooses by number", text: `{{ plural "one" "many" 2 }}`, want: "many"},
		{function: "prepend", why: "adds in front", text: `{{ prepend (list 1) 2 }}`, want: "[2 1]"},
		{function: "print", why: "puts spaces between what is no text", text: `{{ print 1 2 "a" "b" }}`, want: "1 2ab"},
		{function: "printf", why: "formats", text: `{{ printf "%05.1f|%-4s|%q|%%|%*d" 1.25 "a" "b" 3 7 }}`, want: `001.2|a   |"b"|%|  7`},
		{function: "println", why: "ends the line", text: `{{ println "a" 1 }}`, want: "a 1\n"},
		{function: "push", why: "is append", text: `{{ push (list 1) 2 }}`, want: "[1 2]"},
		{function: "quote", why: "escapes", text: `{{ quote "a\"b" nil 1 }}`, want: `"a\"b" "1"`},
		{function: "randAlpha", why: "has letters only", text: `{{ randAlpha 20 }}`, matches: `^[a-zA-Z]{20}$`},
		{function: "randAlphaNum", why: "has letters and digits", text: `{{ randAlphaNum 20 }}`, matches: `^[a-zA-Z0-9]{20}$`},
		{function: "randAscii", why: "has what can be printed", text: `{{ randAscii 20 }}`, matches: `^[ -~]{20}$`},
		{function: "randBytes", why: "is base64 of as many bytes", text: `{{ randBytes 20 | b64dec | len }}`, want: "20"},
		{function: "randInt", why: "is between the numbers", text: `{{ randInt 5 9 }}`, matches: `^[5-8]$`},
		{function: "randNumeric", why: "has digits only", text: `{{ randNumeric 20 }}`, matches: `^[0-9]{20}$`},
		{function: "regexFind", why: "is the first match", text: `{{ regexFind "b." "abcbd" }}`, want: "bc"},
		{function: "regexFindAll", why: "stops at a number", text: `{{ regexFindAll "b." "abcbdbe" 2 }}`, want: "[bc bd]"},
		{function: "regexMatch", why: "finds", text: `{{ regexMatch "^a" "abc" }}`, want: "true"},
		{function: "regexQuoteMeta", why: "escapes", text: `{{ regexQuoteMeta "a.b" }}`, want: `a\.b`},
		{function: "regexReplaceAll", why: "fills in groups", text: `{{ regexReplaceAll "a(.)" "abac" "${1}x" }}`, want: "bxcx"},
		{function: "regexReplaceAllLiteral", why: "fills nothing in", text: `{{ regexReplaceAllLiteral "a(.)" "abac" "$1" }}`, want: "$1$1"},
		{function: "regexSplit", why: "cuts at each match", text: `{{ regexSplit "b+" "abbcbd" -1 }}`, want: "[a c d]"},
		{function: "repeat", why: "repeats", text: `{{ "ab" | repeat 3 }}`, want: "ababab"},
		{function: "replace", why: "replaces each", text: `{{ "postgres://h" | replace "postgres://" "postgresql://" }}`, want: "postgresql://h"},
		{function: "rest", why: "is all but the first", text: `{{ rest (list 1 2 3) }}`, want: "[2 3]"},
		{function: "reverse", why: "turns around", text: `{{ reverse (list 1 2) }}`, want: "[2 1]"},
		{function: "round", why: "rounds to digits", text: `{{ round 1.2345 2 }}`, want: "1.23"},
		{function: "rsaDecrypt", why: "decrypts by SHA-256", text: `{{ rsaDecrypt "RSA-OAEP" "SHA256" .oaep256 .rsaKey }}`, want: "decrypted"},
		{function: "rsaDecrypt", why: "decrypts by SHA-1 in a pipeline", text: `{{ .rsaKey | rsaDecrypt "RSA-OAEP" "SHA1" .oaep1 }}`, want: "decrypted"},
		{function: "rsaDecrypt", why: "decrypts by SHA-512", text: `{{ rsaDecrypt "RSA-OAEP" "SHA512" .oaep512 .rsaKey }}`, want: "decrypted"},
		{function: "rsaDecrypt", why: "takes SHA-256 where no hash is named", text: `{{ rsaDecrypt "RSA-OAEP" "None" .oaep256 .rsaKey }}`, want: "decrypted"},
		{function: "rsaDecrypt", why: "does nothing without a scheme", text: `{{ rsaDecrypt "None" "None" "plain" "" }}`, want: "plain"},
		{function: "semver", why: "has parts", text: `{{ $v := semver "1.2.3-rc.1" }}{{ $v.Minor }} {{ $v.Prerelease }} {{ $v }}`, want: "2 rc.1 1.2.3-rc.1"},
		{function: "semverCompare", why: "compares with a constraint", text: `{{ semverCompare "^1.2.0" "1.3.0" }}`, want: "true"},
		{function: "seq", why: "counts as the command does", text: `{{ seq 3 }}|{{ seq 2 4 }}|{{ seq 0 2 4 }}|{{ seq 2 -1 }}`, want: "1 2 3|2 3 4|0 2 4|2 1 0 -1"},
		{function: "set", why: "changes the dict", text: `{{ $d := dict }}{{ $_ := set $d "a" 1 }}{{ $d.a }}`, want: "1"},
		{function: "sha1sum", why: "is that of the algorithm", text: `{{ sha1sum "" }}`, want: "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		{function: "sha256sum", why: "is that of the algorithm", text: `{{ sha256sum "" }}`, want: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{function: "sha512sum", why: "is that of the algorithm", text: `{{ sha512sum "" | trunc 16 }}`, want: "cf83e1357eefb8bd"},
		{function: "shuffle", why: "keeps the letters", text: `{{ shuffle "aab" }}`, matches: `^(aab|aba|baa)$`},
		{function: "slice", why: "is a part of a list", text: `{{ slice (list 1 2 3) 1 }}`, want: "[2 3]"},
		{function: "snakecase", why: "puts underscores", text: `{{ snakecase "HttpServer" }}`, want: "http_server"},
		{function: "sortAlpha", why: "sorts as texts", text: `{{ sortAlpha (list "b" 10 9) }}`, want: "[10 9 b]"},
		{function: "split", why: "numbers its parts", text: `{{ (split "," "a,b")._1 }}`, want: "b"},
		{function: "splitList", why: "cuts", text: `{{ splitList "," "a,b" }}`, want: "[a b]"},
		{function: "splitn", why: "stops at a number", text: `{{ (splitn "," 2 "a,b,c")._1 }}`, want: "b,c"},
		{function: "squote", why: "does not escape", text: `{{ squote "a'b" 1 }}`, want: `'a'b' '1'`},
		{function: "sub", why: "subtracts", text: `{{ sub 3 1 }}`, want: "2"},
		{function: "subf", why: "subtracts fractions", text: `{{ subf 3 0.5 1 }}`, want: "1.5"},
		{function: "substr", why: "is a part", text: `{{ substr 1 3 "abcd" }} {{ substr 2 -1 "abcd" }}`, want: "bc cd"},
		{function: "swapcase", why: "turns letters", text: `{{ swapcase "aB" }}`, want: "Ab"},
		{function: "ternary", why: "chooses", text: `{{ true | ternary "a" "b" }}`, want: "a"},
		{function: "title", why: "begins words with capitals", text: `{{ title "a bc" }}`, want: "A Bc"},
		{function: "toDate", why: "reads a date", text: `{{ toDate "2006-01-02" "2024-02-03" | date "02.01.2006" }}`, want: "03.02.2024"},
		{function: "toDecimal", why: "reads an octal number", text: `{{ toDecimal "777" }}`, want: "511"},
		{function: "toJson", why: "writes a document", text: `{{ toJson (dict "a" (list 1 "<")) }}`, want: `{"a":[1,"\u003c"]}`},
		{function: "toPrettyJson", why: "indents", text: `{{ toPrettyJson (list 1) }}`, want: "[\n  1\n]"},
		{function: "toRawJson", why: "leaves < alone", text: `{{ toRawJson "<" }}`, want: `"<"`},
		{function: "toString", why: "makes a text", text: `{{ toString 1 | kindOf }}`, want: "string"},
		{function: "toStrings", why: "makes texts", text: `{{ toStrings (list 1 "b") | join "" }}`, want: "1b"},
		{function: "toYaml", why: "writes a document", text: `{{ toYaml (dict "a" (list 1 "x")) }}`, want: "a:\n- 1\n- x"},
		{function: "trim", why: "takes off spaces", text: `{{ trim " a " }}`, want: "a"},
		{function: "trimAll", why: "takes off characters", text: `{{ trimAll "$" "$5$" }}`, want: "5"},
		{function: "trimPrefix", why: "takes off a beginning", text: `{{ trimPrefix "a" "abc" }}`, want: "bc"},
		{function: "trimSuffix", why: "takes off an end", text: `{{ trimSuffix "c" "abc" }}`, want: "ab"},
		{function: "trimall", why: "is trimAll", text: `{{ trimall "$" "$5$" }}`, want: "5"},
		{function: "trunc", why: "cuts at either end", text: `{{ trunc 2 "abc" }} {{ trunc -2 "abc" }}`, want: "ab bc"},
		{function: "tuple", why: "is list", text: `{{ tuple 1 2 }}`, want: "[1 2]"},
		{function: "typeIs", why: "compares the type", text: `{{ typeIs "int" 1 }}`, want: "true"},
		{function: "typeIsLike", why: "sees through a pointer", text: `{{ typeIsLike "semver.Version" (semver "1.0.0") }}`, want: "true"},
		{function: "typeOf", why: "names the type", text: `{{ typeOf 1 }}`, want: "int"},
		{function: "uniq", why: "leaves out what was there", text: `{{ uniq (list 1 1 2) }}`, want: "[1 2]"},
		{function: "unixEpoch", why: "counts seconds", text: `{{ unixEpoch ` + when + ` }}`, want: "1706933106"},
		{function: "unset", why: "takes a key away", text: `{{ $d := dict "a" 1 }}{{ $_ := unset $d "a" }}{{ len $d }}`, want: "0"},
		{function: "until", why: "counts from 0", text: `{{ until 3 }}`, want: "[0 1 2]"},
		{function: "untilStep", why: "counts in steps", text: `{{ untilStep 0 6 2 }}`, want: "[0 2 4]"},
		{function: "untitle", why: "begins words with small letters", text: `{{ untitle "A Bc" }}`, want: "a bc"},
		{function: "upper", why: "makes capitals", text: `{{ upper "abc" }}`, want: "ABC"},
		{function: "urlJoin", why: "is the inverse of urlParse", text: `{{ urlParse "https://u:p@h:1/p?q=1#f" | urlJoin }}`, want: "https://u:p@h:1/p?q=1#f"},
		{function: "urlParse", why: "has parts", text: `{{ (urlParse "https://u:p@h:1/p").hostname }}`, want: "h"},
		{function: "urlquery", why: "escapes", text: `{{ urlquery "a b&c" }}`, want: "a+b%26c"},
		{function: "uuidv4", why: "is one of version 4", text: `{{ uuidv4 }}`, matches: `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`},
		{function: "values", why: "has the order of the keys", text: `{{ values (dict "c" 3 "a" 1 "b" 2) }}`, want: "[1 2 3]"},
		{function: "without", why: "leaves out", text: `{{ without (list 1 2 3) 2 }}`, want: "[1 3]"},
		{function: "wrap", why: "breaks lines", text: `{{ wrap 3 "aa bb cc" }}`, want: "aa\nbb\ncc"},
		{function: "wrapWith", why: "breaks lines with a text", text: `{{ wrapWith 2 "|" "aabb" }}`, want: "aa|bb"},
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()

	e := New(Options{Timeout: time.Minute})
	data := fixtures(t)

	for _, c := range calls() {
		t.Run(c.function+" "+c.why, func(t *testing.T) {
			t.Parallel()

			if !strings.Contains(c.text, c.function) {
				t.Fatalf("the case does not call %s", c.function)
			}

			got, err := e.Render("k", c.text, data)
			if err != nil {
				t.Fatal(err)
			}

			if c.matches != "" {
				if !regexp.MustCompile(c.matches).Match(got) {
					t.Errorf("got %q; want a match of %s", got, c.matches)
				}
			} else if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryFunctionHasACase(t *testing.T) {
	t.Parallel()

	tested := map[string]bool{}
	for _, c := range calls() {
		tested[c.function] = true
	}

	for _, name := range slices.Concat(allowed(), own(), builtin()) {
		if !tested[name] {
			t.Errorf("%s has no case in calls", name)
		}
	}
}
