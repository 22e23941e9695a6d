package template

import (
	"math"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
)

// bound returns how many bytes a call with these arguments returns at most, or
// fails because it would take too long, or never end. Functions that have none
// make a small multiple of what they are given.
type bound func(r *run, args []reflect.Value) (int, error)

const (
	// maxParsed is the longest JSON or YAML document.
	maxParsed = 1 << 20
	// maxRandom is the longest random text: each character is drawn.
	maxRandom = 1 << 16
	// maxKey is the longest PEM of a private key: computing with longer ones
	// takes seconds.
	maxKey = 1 << 14
	// maxPEM is the longest text with certificates.
	maxPEM = 1 << 20
	// maxPairs of values that a function compares.
	maxPairs = 1 << 22
	// maxCutset of the characters that trimAll takes off.
	maxCutset = 1 << 10
	// maxVersion is the longest semantic version, or constraint of one.
	maxVersion = 1 << 8
	// maxTerms of a decimal calculation, whose digits grow with each.
	maxTerms = 100
	// bcrypt takes no longer password.
	maxBcrypt = 72

	// Regular expressions: the length of one, its size when repetitions are
	// written out, and the steps that a search may take.
	maxPattern     = 1 << 12
	maxPatternSize = 1 << 14
	maxSteps       = 1 << 26
)

func bounds() map[string]bound {
	all := map[string]bound{
		"concat":         boundConcat,
		"derivePassword": boundDerivePassword,
		"genPrivateKey":  boundGenPrivateKey,
		"htpasswd":       boundHtpasswd,
		"bcrypt":         boundBcrypt,
		"indent":         boundIndent,
		"nindent":        boundIndent,
		"join":           boundJoin,
		"printf":         boundPrintf,
		"repeat":         boundRepeat,
		"replace":        boundReplace,
		"seq":            boundSeq,
		"set":            boundSet,
		"split":          boundSplit,
		"splitList":      boundSplit,
		"splitn":         boundSplit,
		"until":          boundUntil,
		"untilStep":      boundUntilStep,
		"wrapWith":       boundWrapWith,

		"buildCustomCert": longest(maxPEM, 0, 1),
		"certSANs":        longest(maxPEM, 0),
		"filterCertChain": longest(maxPEM, 1),
		"filterPEM":       longest(maxPEM, 1),

		"pemTruststoreToPKCS12":     longest(maxPEM, 0),
		"pemTruststoreToPKCS12Pass": longest(maxPEM, 0),

		"genCAWithKey":             longest(maxKey, 2),
		"genSelfSignedCertWithKey": longest(maxKey, 4),
		"genSignedCert":            boundSigned,
		"genSignedCertWithKey":     boundSigned,
		"jwkPrivateKeyPem":         longest(maxKey, 0),
		"jwkPublicKeyPem":          longest(maxKey, 0),
		"rsaDecrypt":               longest(maxKey, 2, 3),
	}

	each := func(b bound, names ...string) {
		for _, name := range names {
			all[name] = b
		}
	}
	each(boundPairs(0, 0), "uniq", "mustUniq")
	each(boundPairs(0, -1), "without", "mustWithout")
	each(boundChunk, "chunk", "mustChunk")
	each(boundRandom, "randAlpha", "randAlphaNum", "randAscii", "randBytes", "randNumeric")
	each(boundTerms, "addf", "divf", "mulf", "subf")
	each(longest(maxParsed, 0), "fromJson", "fromYaml", "mustFromJson", "shuffle")
	each(longest(maxVersion, 0), "semver")
	each(longest(maxVersion, 0, 1), "semverCompare")
	each(longest(maxCutset, 0), "trimAll", "trimall")
	each(longest(maxPEM, 0), "pkcs12cert", "pkcs12key")
	each(longest(maxPEM, 1), "pkcs12certPass", "pkcs12keyPass")
	each(boundPKCS12, "fullPemToPkcs12", "fullPemToPkcs12Pass", "pemToPkcs12", "pemToPkcs12Pass")
	each(boundSearch, "mustRegexFind", "mustRegexMatch", "regexFind", "regexMatch")
	each(boundSearchAll, "mustRegexFindAll", "mustRegexSplit", "regexFindAll", "regexSplit")
	each(boundReplaceAll, "mustRegexReplaceAll", "mustRegexReplaceAllLiteral", "regexReplaceAll", "regexReplaceAllLiteral")

	return all
}

// times multiplies what is not negative, and is too large where that overflows.
func times(a, b int) int {
	if product := float64(a) * float64(b); product > maxValue {
		return maxValue + 1
	}

	return a * b
}

// longest refuses arguments that are longer.
func longest(limit int, positions ...int) bound {
	return func(_ *run, args []reflect.Value) (int, error) {
		for _, i := range positions {
			if args[i].Len() > limit {
				return 0, fail("an argument is longer than %d bytes", limit)
			}
		}

		return 0, nil
	}
}

// length of a list, or 0.
func length(v reflect.Value) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}

	switch v.Kind() {
	case reflect.Array, reflect.Slice:
		return v.Len()
	default:
		return 0
	}
}

func boundRepeat(_ *run, args []reflect.Value) (int, error) {
	if args[0].Int() < 0 {
		return 0, fail("the number must not be negative")
	}

	return times(int(args[0].Int()), args[1].Len()), nil
}

func boundIndent(_ *run, args []reflect.Value) (int, error) {
	if args[0].Int() < 0 {
		return 0, fail("the number must not be negative")
	}

	text := args[1].String()

	return times(int(args[0].Int()), 1+strings.Count(text, "\n")) + len(text), nil
}

func boundReplace(_ *run, args []reflect.Value) (int, error) {
	text := args[2].String()

	return len(text) + times(strings.Count(text, args[0].String()), args[1].Len()), nil
}

func boundJoin(_ *run, args []reflect.Value) (int, error) {
	return size(args[1]) + times(length(args[1]), args[0].Len()), nil
}

func boundWrapWith(_ *run, args []reflect.Value) (int, error) {
	return times(args[2].Len(), 1+args[1].Len()), nil
}

func boundSplit(_ *run, args []reflect.Value) (int, error) {
	text := args[len(args)-1].String()

	return times(strings.Count(text, args[0].String())+1, 2*perValue), nil
}

func boundConcat(_ *run, args []reflect.Value) (int, error) {
	total := 0
	for _, list := range args {
		total = min(total+times(length(list), perValue), maxValue+1)
	}

	return total, nil
}

func boundChunk(_ *run, args []reflect.Value) (int, error) {
	if args[0].Int() <= 0 {
		return 0, fail("the number must be positive")
	}

	return times(length(args[1]), 2*perValue), nil
}

// boundPairs is for functions that compare each value of one list with each of
// another; -1 are the arguments themselves.
func boundPairs(a, b int) bound {
	return func(_ *run, args []reflect.Value) (int, error) {
		n, m := length(args[a]), len(args)
		if b >= 0 {
			m = length(args[b])
		}

		if times(n, m) > maxPairs {
			return 0, fail("the list is too long")
		}

		return 0, nil
	}
}

// boundSet keeps a dict out of itself: such a value has no end.
func boundSet(_ *run, args []reflect.Value) (int, error) {
	if holds(args[2], args[0].Pointer(), 0) {
		return 0, fail("the dict would hold itself, or be nested too deeply")
	}

	return 0, nil
}

func holds(v reflect.Value, dict uintptr, level int) bool {
	if level > maxLevels {
		return true
	}

	switch v.Kind() {
	case reflect.Interface:
		return holds(v.Elem(), dict, level)
	case reflect.Map:
		if v.Pointer() == dict {
			return true
		}

		for entries := v.MapRange(); entries.Next(); {
			if holds(entries.Value(), dict, level+1) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if holds(v.Index(i), dict, level+1) {
				return true
			}
		}
	default:
	}

	return false
}

func boundUntil(_ *run, args []reflect.Value) (int, error) {
	return steps(0, args[0].Int(), 1)
}

func boundUntilStep(_ *run, args []reflect.Value) (int, error) {
	return steps(args[0].Int(), args[1].Int(), args[2].Int())
}

func boundSeq(_ *run, args []reflect.Value) (int, error) {
	switch len(args) {
	case 1:
		return steps(1, args[0].Int(), 1)
	case 2:
		return steps(args[0].Int(), args[1].Int(), 1)
	case 3:
		return steps(args[0].Int(), args[2].Int(), args[1].Int())
	default:
		return 0, nil
	}
}

// steps is the size of a list of numbers.
func steps(start, stop, step int64) (int, error) {
	// Beyond that the sum overflows, and the list never ends.
	const largest = 1 << 53

	for _, n := range []int64{start, stop, step} {
		if n > largest || n < -largest {
			return 0, fail("a number is too large")
		}
	}

	if step == 0 {
		step = 1
	}

	count := math.Abs(float64(stop-start)/float64(step)) + 2
	if count > maxValue {
		return maxValue + 1, nil
	}

	return times(int(count), perValue), nil
}

func boundRandom(_ *run, args []reflect.Value) (int, error) {
	if n := args[0].Int(); n < 0 || n > maxRandom {
		return 0, fail("the number must be between 0 and %d", maxRandom)
	}

	return 0, nil
}

func boundTerms(_ *run, args []reflect.Value) (int, error) {
	if len(args) > maxTerms {
		return 0, fail("it takes at most %d arguments", maxTerms)
	}

	return 0, nil
}

// boundGenPrivateKey refuses what sprig would answer with a message in place of
// a key, and DSA, whose parameters can take minutes.
func boundGenPrivateKey(_ *run, args []reflect.Value) (int, error) {
	switch args[0].String() {
	case "", "rsa", "ecdsa", "ed25519":
		return 0, nil
	default:
		return 0, fail("it makes keys of the types rsa, ecdsa and ed25519")
	}
}

// boundBcrypt refuses what sprig would answer with a message in place of a
// hash.
func boundBcrypt(_ *run, args []reflect.Value) (int, error) {
	if args[len(args)-1].Len() > maxBcrypt {
		return 0, fail("a password must not be longer than %d bytes", maxBcrypt)
	}

	return 0, nil
}

func boundHtpasswd(r *run, args []reflect.Value) (int, error) {
	if strings.Contains(args[0].String(), ":") {
		return 0, fail("a user's name must not contain a colon")
	}

	return boundBcrypt(r, args)
}

func boundDerivePassword(_ *run, args []reflect.Value) (int, error) {
	switch args[1].String() {
	case "maximum", "long", "medium", "short", "basic", "pin":
		return 0, nil
	default:
		return 0, fail("it makes passwords of the types maximum, long, medium, short, basic and pin")
	}
}

// boundSigned is for the functions that sign with a CA: its key, and the key to
// be signed, are what takes time.
func boundSigned(_ *run, args []reflect.Value) (int, error) {
	keys := []string{args[4].FieldByName("Key").String()}
	if len(args) > 5 {
		keys = append(keys, args[5].String())
	}

	for _, key := range keys {
		if len(key) > maxKey {
			return 0, fail("a private key is longer than %d bytes", maxKey)
		}
	}

	return 0, nil
}

func boundPKCS12(_ *run, args []reflect.Value) (int, error) {
	if args[0].Len() > maxPEM || args[1].Len() > maxKey {
		return 0, fail("the certificates or the key are too long")
	}

	return 0, nil
}

// boundPrintf adds up the sizes that the verbs of a format can write.
func boundPrintf(_ *run, args []reflect.Value) (int, error) {
	// fmt takes no larger number in a format, and no larger argument for *.
	const largest = 1e6

	format, largestArg, star := args[0].String(), 0, 0

	for _, arg := range args[1:] {
		largestArg = max(largestArg, size(arg))

		if arg.Kind() == reflect.Interface {
			arg = arg.Elem()
		}

		if arg.CanInt() {
			star = max(star, int(min(largest, max(arg.Int(), -largest, -arg.Int()))))
		}
	}

	// Arguments without a verb are added with their type.
	total := len(format) + 4*size(args[1:]...)

	for rest := format; ; {
		at := strings.IndexByte(rest, '%')
		if at < 0 || total > maxValue {
			return total, nil
		}

		v := parseVerb(rest[at+1:], star)
		rest = rest[at+1+v.length:]
		total = min(total+v.padding+v.factor*largestArg+v.constant, maxValue+1)
	}
}

// verb returns the size that one verb of a format can write.
type verb struct{ length, padding, factor, constant int }

func parseVerb(format string, star int) verb {
	const largest = 1e6

	v, number, plain := verb{factor: 1, constant: 512}, 0, true

	for v.length < len(format) {
		c := format[v.length]
		v.length++

		switch {
		case c >= '0' && c <= '9':
			number = min(number*10+int(c-'0'), largest)
		case c == '*':
			v.padding += star
			number = 0
		case c == '.' || c == '[' || c == ']' || c == ' ' || c == '-':
			v.padding += number
			number = 0
		case c == '#' || c == '+':
			plain = false
		default:
			v.padding += number

			switch {
			case c == '%':
				return verb{length: v.length, padding: v.padding, constant: 1}
			case strings.IndexByte("sdt", c) < 0 && (c != 'v' || !plain):
				// Quoted, or in hexadecimal with a prefix for each byte.
				v.factor = 12
			}

			return v
		}
	}

	return v
}

// pattern checks what a regular expression may cost on a text, and compiles it.
func pattern(args []reflect.Value) (*regexp.Regexp, string, error) {
	expression, text := args[0].String(), args[1].String()
	if len(expression) > maxPattern {
		return nil, "", fail("a regular expression is longer than %d bytes", maxPattern)
	}

	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, "", fail("the regular expression is not valid")
	}

	weight := weigh(parsed)
	if weight > maxPatternSize || float64(weight)*float64(len(text)) > maxSteps {
		return nil, "", fail("the regular expression is too large for the text")
	}

	compiled, err := regexp.Compile(expression)
	if err != nil {
		return nil, "", fail("the regular expression is not valid")
	}

	return compiled, text, nil
}

// weigh is about the number of instructions of a regular expression, and of
// the ranges in its classes.
func weigh(re *syntax.Regexp) int {
	weight := 1 + len(re.Rune)/8

	if re.Op == syntax.OpLiteral {
		weight = 1 + len(re.Rune)
	}

	for _, sub := range re.Sub {
		weight = min(weight+weigh(sub), maxPatternSize+1)
	}

	if re.Op == syntax.OpRepeat {
		weight = times(weight, max(re.Min+1, re.Max, 1))
	}

	return min(weight, maxPatternSize+1)
}

func boundSearch(_ *run, args []reflect.Value) (int, error) {
	_, _, err := pattern(args)

	return 0, err
}

func boundSearchAll(r *run, args []reflect.Value) (int, error) {
	found, _, _, err := r.rehearse(args)

	return times(found+1, perValue), err
}

func boundReplaceAll(r *run, args []reflect.Value) (int, error) {
	found, matched, text, err := r.rehearse(args)
	if err != nil {
		return 0, err
	}

	replacement := args[2].String()
	expanded := times(1+strings.Count(replacement, "$"), matched)

	return len(text) + times(found, len(replacement)) + expanded, nil
}

// errTime ends a rehearsal.
type errTime struct{}

// rehearse finds all matches without keeping them, and counts them and their
// bytes. A search for all matches may start over at each character: one that
// takes more than half of the time that is left is given up here, where that
// can be seen, and what comes through takes no longer the second time.
func (r *run) rehearse(args []reflect.Value) (found, matched int, text string, err error) {
	re, text, err := pattern(args)
	if err != nil {
		return 0, 0, "", err
	}

	half := time.Now().Add(time.Until(r.deadline) / 2)

	defer func() {
		if p := recover(); p != nil {
			err = fail("the regular expression takes too long on the text")
		}
	}()

	re.ReplaceAllStringFunc(text, func(match string) string {
		found++
		matched += len(match)

		if time.Now().After(half) {
			panic(errTime{})
		}

		return ""
	})

	return found, matched, text, nil
}
