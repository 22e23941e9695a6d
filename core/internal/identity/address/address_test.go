package address

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why, in string
		want    Address
		err     string
	}{
		{why: "the form of the documentation", in: "dns:///vault.secrets.svc:8443", want: Address{Host: "vault.secrets.svc", Port: 8443}},
		{why: "host and port alone", in: "vault.secrets.svc:8443", want: Address{Host: "vault.secrets.svc", Port: 8443}},
		{why: "https as people write it", in: "https://vault.secrets.svc:8443/", want: Address{Host: "vault.secrets.svc", Port: 8443}},
		{why: "case and a final dot are one name", in: "Vault.Secrets.svc.:8443", want: Address{Host: "vault.secrets.svc", Port: 8443}},
		{why: "an IPv4 address", in: "127.0.0.1:1", want: Address{Host: "127.0.0.1", Port: 1}},
		{why: "an IPv6 address is spelled one way", in: "[0:0:0:0:0:0:0:1]:65535", want: Address{Host: "::1", Port: 65535}},
		{why: "a unix socket", in: "unix:///run/eso/vault.sock", want: Address{Path: "/run/eso/vault.sock"}},
		{why: "the proposal's form of one", in: "http+unix:///path/to/socket.sock", want: Address{Path: "/path/to/socket.sock"}},

		{why: "nothing is no address", in: "", err: "empty"},
		{why: "plain text is never a way", in: "http://vault:8443", err: "http:// has no TLS"},
		{why: "a port is needed", in: "vault.secrets.svc", err: "no host and port"},
		{why: "port 0 means any port", in: "vault:0", err: `port "0"`},
		{why: "a port beyond the range", in: "vault:65536", err: `port "65536"`},
		{why: "a second spelling of a port", in: "vault:08443", err: `port "08443"`},
		{why: "a path is not part of an address", in: "https://vault:8443/v1", err: "port"},
		{why: "credentials are not part of an address", in: "https://user@vault:8443", err: "neither a DNS name nor an IP address"},
		{why: "an authority would choose another resolver", in: "dns://8.8.8.8/vault:8443", err: "no host and port"},
		{why: "another scheme", in: "passthrough:///vault:8443", err: "no host and port"},
		{why: "a relative socket", in: "unix://run/x.sock", err: "three slashes"},
		{why: "a socket that leaves its folder", in: "unix:///run/eso/../docker.sock", err: "not clean"},
		{why: "a socket's path with an escape", in: "unix:///run/%2e%2e/x", err: "character"},
		{why: "an IPv4 address in disguise", in: "[::ffff:127.0.0.1]:1", err: "IPv4 in its own form"},
		{why: "a zone names an interface", in: "[fe80::1%eth0]:1", err: "zone"},
		{why: "an endless name", in: strings.Repeat("a", 2000) + ":1", err: "characters"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got, err := Parse(c.in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("Parse(%q) = %v, %v; want an error with %q", c.in, got, err, c.err)
				}

				return
			}

			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Fatalf("Parse(%q): %v (-want +got):\n%s", c.in, err, diff)
			}

			if again, err := Parse(got.String()); err != nil || again != got {
				t.Errorf("Parse(%q) = %v, %v; the canonical spelling must read back", got, again, err)
			}
		})
	}
}

func TestServiceNamespace(t *testing.T) {
	t.Parallel()

	for in, want := range map[string]string{
		"vault.secrets.svc:1":               "secrets",
		"vault.secrets.svc.cluster.local:1": "secrets",
		"vault.secrets:1":                   "",
		"vault.example.com:1":               "",
		"10.0.0.1:1":                        "",
	} {
		a, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}

		if got := a.ServiceNamespace(); got != want {
			t.Errorf("namespace of %s is %q, not %q", in, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why, path, dir string
		want           bool
	}{
		{"a socket in the folder", "/run/eso/x.sock", "/run/eso", true},
		{"a final slash changes nothing", "/run/eso/x.sock", "/run/eso/", true},
		{"a folder below", "/run/eso/a/x.sock", "/run/eso", true},
		{"a folder whose name begins alike", "/run/eso-evil/x.sock", "/run/eso", false},
		{"a relative folder allows nothing", "/run/eso/x.sock", "run", false},
		{"no folder allows nothing", "/run/eso/x.sock", "", false},
	} {
		if got := (Address{Path: c.path}).Within(c.dir); got != c.want {
			t.Errorf("%s: %s within %q is %t", c.why, c.path, c.dir, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"dns:///a.b.svc:1", "unix:///a", "http+unix:///a/b", "https://a:1/", "[::1]:1", "a:1", "http://a:1"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, in string) {
		a, err := Parse(in)
		if err != nil {
			return
		}

		if (a.Path == "") == (a.Host == "") {
			t.Fatalf("Parse(%q) = %+v: neither socket nor host, or both", in, a)
		}

		if again, err := Parse(a.String()); err != nil || again != a {
			t.Fatalf("Parse(%q) = %+v does not read back: %+v, %v", in, a, again, err)
		}
	})
}
