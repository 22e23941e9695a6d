package operator

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/external-secrets/eso/core/store"
)

func TestMainParsesFlagsOfExtensions(t *testing.T) {
	t.Parallel()

	var shelves int

	extension := Extension{Flags: func(flags *flag.FlagSet) { flags.IntVar(&shelves, "shelves", 0, "number of shelves") }}

	for _, c := range []struct {
		why  string
		args []string
		code int
		out  string
	}{
		{"a flag of the extension is one of the command", []string{"--shelves=3", "--version"}, exitOK, "external-secrets-full"},
		{"an unknown flag", []string{"--drawers=3"}, exitUsage, "drawers"},
		{"an argument", []string{"argument"}, exitUsage, `unexpected argument "argument"`},
		{"a flag with an invalid value", []string{"--concurrent=0"}, exitUsage, "--concurrent: 0"},
	} {
		var out bytes.Buffer

		if code := Main("external-secrets-full", c.args, &out, &out, extension); code != c.code || !strings.Contains(out.String(), c.out) {
			t.Errorf("%s: code %d, output %q", c.why, code, out.String())
		}

		if c.code == exitOK && shelves != 3 {
			t.Errorf("%s: shelves = %d", c.why, shelves)
		}
	}
}

func TestResolversOfExtensions(t *testing.T) {
	t.Parallel()

	serving := func(err error) Extension {
		return Extension{Stores: map[string]func(Environment) (store.Resolver, error){
			"a/v1": func(Environment) (store.Resolver, error) { return nil, err },
		}}
	}

	for _, c := range []struct {
		why        string
		extensions []Extension
		want       string
	}{
		{"one that serves", []Extension{serving(nil)}, ""},
		{"which of two serves a store must not depend on their order", []Extension{serving(nil), serving(nil)}, "two extensions serve a/v1"},
		{"one that cannot", []Extension{serving(errors.New("no shelf"))}, "cannot serve stores: a/v1: no shelf"},
	} {
		_, _, err := resolvers(Environment{}, c.extensions)

		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: err = %v; want %q", c.why, err, c.want)
		}
	}
}
