package store

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		// kind that it is refused as; empty where it is public.
		kind string
	}{
		{"8.8.8.8", ""},
		{"172.15.255.255", ""},
		{"172.32.0.1", ""},
		{"100.63.255.255", ""},
		{"100.128.0.1", ""},
		{"2606:4700::1111", ""},
		{"2a00:1450::1", ""},

		{"127.0.0.1", "a loopback"},
		{"127.255.255.254", "a loopback"},
		{"::1", "a loopback"},
		{"0.0.0.0", "an unspecified"},
		{"0.1.2.3", "an unspecified"},
		{"::", "an unspecified"},
		{"10.0.0.1", "a private"},
		{"172.16.0.1", "a private"},
		{"172.31.255.255", "a private"},
		{"192.168.1.1", "a private"},
		{"fc00::1", "a private"},
		{"169.254.0.1", "a link-local"},
		{"fe80::1", "a link-local"},
		{"fe80::1%eth0", "a link-local"},
		{"224.0.0.1", "a multicast"},
		{"239.255.255.255", "a multicast"},
		{"ff02::1", "a multicast"},
		{"255.255.255.255", "a reserved"},
		{"240.0.0.1", "a reserved"},
		{"192.0.2.1", "a reserved"},
		{"198.18.0.1", "a reserved"},
		{"100.64.0.1", "a carrier's private"},
		{"100.127.255.255", "a carrier's private"},

		// Metadata services of clouds.
		{"169.254.169.254", "a link-local"},
		{"fd00:ec2::254", "a private"},
		{"fd20:ce::254", "a private"},
		{"100.100.100.200", "a carrier's private"},
		{"168.63.129.16", "a metadata service's"},
		{"192.0.0.192", "a reserved"},

		// Other ways to write an address of IPv4.
		{"::ffff:127.0.0.1", "a loopback"},
		{"::ffff:10.0.0.1", "a private"},
		{"::ffff:169.254.169.254", "a link-local"},
		{"::ffff:8.8.8.8", ""},
		{"::127.0.0.1", "a reserved"},
		{"64:ff9b::7f00:1", "a reserved"},
		{"64:ff9b:1::a00:1", "a reserved"},
		{"2002:7f00:1::", "a tunnel's"},
		{"2001:0:4136:e378::1", "a tunnel's"},
		{"fec0::1", "a reserved"},
		{"2001:db8::1", "a reserved"},
		{"100::1", "a reserved"},
	} {
		egress := &egressPolicy{}

		err := egress.control("tcp", netip.AddrPortFrom(netip.MustParseAddr(c.address), 443).String(), nil)
		if c.kind == "" {
			if err != nil {
				t.Errorf("%s: %v", c.address, err)
			}

			continue
		}

		var refused *addressError
		if !errors.As(err, &refused) || refused.kind != c.kind {
			t.Errorf("%s: %v; want it refused as %s", c.address, err, c.kind)
		}
	}

	if err := (&egressPolicy{}).control("tcp", "no-address", nil); err == nil {
		t.Error("what is no address is dialled")
	}
}

func TestAllowedNetworks(t *testing.T) {
	var egress egressPolicy

	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	egress.register(flags)

	if err := flags.Parse([]string{"--allow-network=10.1.2.3/16", "--allow-network", "fd00::/8"}); err != nil {
		t.Fatal(err)
	}

	for address, allowed := range map[string]bool{
		"10.1.0.1": true, "::ffff:10.1.0.1": true, "10.2.0.1": false, "fd00:1::1": true, "fc00::1": false, "127.0.0.1": false, "8.8.8.8": true,
	} {
		if err := egress.check(netip.MustParseAddr(address)); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}

	for _, wrong := range []string{"10.0.0.1", "all", "10.0.0.0/33", ""} {
		if err := flags.Parse([]string{"--allow-network=" + wrong}); err == nil {
			t.Errorf("--allow-network=%s is accepted", wrong)
		}
	}
}

// A name is judged by what it is resolved to when it is dialled, so that one
// that is resolved to another address at every look gains nothing.
func TestNamesAreJudgedWhenDialled(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))

	s, err := (&egressPolicy{}).New(t.Context(), environment(), &v2alpha1.Webhook{Spec: v2alpha1.WebhookSpec{URL: "http://localhost:" + port + "/{{ .remoteRef.key }}"}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close(context.Background()) })

	got := one(t, s, provider.Read{Key: "a"})
	if code(got.Err) != "FailedPrecondition INVALID_CONFIG" || !strings.Contains(got.Err.Error(), "loopback") || !strings.Contains(got.Err.Error(), "--allow-network") {
		t.Errorf("%v", got.Err)
	}

	if strings.Contains(got.Err.Error(), "127.0.0.1") || strings.Contains(got.Err.Error(), "::1") {
		t.Errorf("the error contains the resolved address: %v", got.Err)
	}

	if diff := cmp.Diff([]string(nil), server.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// The environment's proxies would see every request, and could reach what the
// provider may not.
func TestProxyOfTheEnvironment(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	if transport := (&egressPolicy{}).transport(); transport.Proxy != nil {
		t.Error("a proxy is used without the flag")
	}

	if transport := (&egressPolicy{Proxy: true}).transport(); transport.Proxy == nil {
		t.Error("the flag does nothing")
	} else if _, err := transport.Proxy(request); err != nil {
		t.Error(err)
	}
}

// A connection that is dropped without a word is found by pings.
func TestConnectionsArePinged(t *testing.T) {
	transport := (&egressPolicy{}).transport()
	want := &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}

	if diff := cmp.Diff(want, transport.HTTP2); diff != "" || !transport.ForceAttemptHTTP2 {
		t.Errorf("HTTP/2 is attempted: %t (-want +got):\n%s", transport.ForceAttemptHTTP2, diff)
	}
}
