package store

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/external-secrets/eso/sdk/provider"
)

// egressPolicy decides which addresses stores may connect to, by flags of the
// provider. The zero value allows public addresses only, and no proxy.
type egressPolicy struct {
	// Networks that may be reached although they are not public.
	Networks []netip.Prefix
	// Proxy uses the proxies of the environment. A proxy then resolves names, and
	// decides which addresses may be reached.
	Proxy bool
}

// register adds the flags.
func (e *egressPolicy) register(flags *flag.FlagSet) {
	flags.Func("allow-network", "network, as in 10.1.0.0/16, that stores may reach although it is not public; repeat for more; every user of a Webhook can then send requests there", func(s string) error {
		network, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("%q is no network, such as 10.1.0.0/16", s)
		}

		e.Networks = append(e.Networks, network.Masked())

		return nil
	})
	flags.BoolVar(&e.Proxy, "proxy-from-environment", false, "use the proxies of HTTP_PROXY, HTTPS_PROXY and NO_PROXY; --allow-network does not limit the destinations of a proxy")
}

// addressError is the error of an address that is not allowed. It does not contain
// the address: the author of a config must not be able to resolve internal names.
type addressError struct{ kind string }

func (e *addressError) Error() string {
	return "leads to " + e.kind + " address, which this provider does not connect to: its flag --allow-network allows networks"
}

// check reports whether an address is allowed.
func (e *egressPolicy) check(address netip.Addr) error {
	plain := address.Unmap().WithZone("")

	for _, network := range e.Networks {
		if network.Contains(plain) {
			return nil
		}
	}

	if kind := special(plain); kind != "" {
		return &addressError{kind: kind}
	}

	return nil
}

// special returns the kind of an address that is not public; empty for a public
// one.
func special(address netip.Addr) string {
	switch {
	case address.IsUnspecified():
		return "an unspecified"
	case address.IsLoopback():
		return "a loopback"
	case address.IsMulticast():
		return "a multicast"
	case address.IsLinkLocalUnicast():
		return "a link-local"
	case address.IsPrivate():
		return "a private"
	}

	networks := reserved4()
	if address.Is6() {
		// Of IPv6, public addresses are those below 2000::/3.
		if !netip.MustParsePrefix("2000::/3").Contains(address) {
			return "a reserved"
		}

		networks = reserved6()
	}

	for network, kind := range networks {
		if netip.MustParsePrefix(network).Contains(address) {
			return kind
		}
	}

	return ""
}

// reserved4 are networks of IPv4 that are not public.
func reserved4() map[string]string {
	return map[string]string{
		"0.0.0.0/8":     "an unspecified",
		"100.64.0.0/10": "a carrier's private",
		// Azure's, for its virtual machines: the only public one that is meant
		// for the machine alone.
		"168.63.129.16/32": "a metadata service's",
		"192.0.0.0/24":     "a reserved",
		"192.0.2.0/24":     "a reserved",
		"192.88.99.0/24":   "a reserved",
		"198.18.0.0/15":    "a reserved",
		"198.51.100.0/24":  "a reserved",
		"203.0.113.0/24":   "a reserved",
		"240.0.0.0/4":      "a reserved",
	}
}

// reserved6 are networks of IPv6 that look public and are not, or lead to an
// IPv4 address of whatever kind.
func reserved6() map[string]string {
	return map[string]string{
		"2001::/23":     "a tunnel's",
		"2001:db8::/32": "a reserved",
		"2002::/16":     "a tunnel's",
		"3fff::/20":     "a reserved",
	}
}

// control is called with each address before it is dialled, after names are
// resolved, so that a name cannot resolve to another address after the check.
func (e *egressPolicy) control(_, address string, _ syscall.RawConn) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return &addressError{kind: "an unknown"}
	}

	return e.check(parsed.Addr())
}

// checkHost refuses a host that is an address and may not be reached, before a
// connection is made.
func (e *egressPolicy) checkHost(u *url.URL) error {
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name is judged when it is resolved
	}

	return e.check(address)
}

// transport returns a transport that connects to allowed addresses only.
func (e *egressPolicy) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: e.control}

	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// Without pings, a connection that a firewall has dropped would be used
		// for every request until the kernel times out, minutes later.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}

	if e.Proxy {
		transport.Proxy = http.ProxyFromEnvironment
	}

	return transport
}

// invalid converts the refusal of an address to an error of the config.
func (e *addressError) invalid(field string) error {
	return provider.InvalidConfig("%s %s", field, e.Error())
}
