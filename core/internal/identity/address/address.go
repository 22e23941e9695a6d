// Package address reads the addresses of providers. It is the one place that
// knows their forms, so that two spellings of one address compare equal and
// what is compared is what is dialled.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Address is where a provider listens: a TCP host and port, or a unix socket.
// Addresses compare with ==.
type Address struct {
	// Host is a DNS name in lower case without a final dot, or an IP address;
	// empty for a unix socket.
	Host string
	// Port is 1 to 65535; 0 for a unix socket.
	Port uint16
	// Path of the unix socket, absolute and clean; else empty.
	Path string
}

const maxLength = 1024

var dnsName = regexp.MustCompile(`^[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*$`)

// errForms lists the forms of an address.
var errForms = errors.New("use dns:///host:port, host:port, https://host:port, unix:///path or http+unix:///path")

// Parse reads an address. http:// is refused: secrets travel over TLS only.
func Parse(s string) (Address, error) {
	switch {
	case s == "":
		return Address{}, fmt.Errorf("the address is empty: %w", errForms)
	case len(s) > maxLength:
		return Address{}, fmt.Errorf("the address has %d characters, more than %d", len(s), maxLength)
	case strings.HasPrefix(s, "http://"):
		return Address{}, fmt.Errorf("address %q is refused: http:// has no TLS: %w", s, errForms)
	}

	for _, scheme := range []string{"unix://", "http+unix://"} {
		if rest, ok := strings.CutPrefix(s, scheme); ok {
			return parseSocket(s, rest)
		}
	}

	rest := s
	for _, scheme := range []string{"dns:///", "https://"} {
		if cut, ok := strings.CutPrefix(s, scheme); ok {
			rest = strings.TrimSuffix(cut, "/")

			break
		}
	}

	return parseHostPort(s, rest)
}

func parseSocket(whole, socket string) (Address, error) {
	switch {
	case !strings.HasPrefix(socket, "/"):
		return Address{}, fmt.Errorf("address %q names no absolute path: write three slashes, as in unix:///run/provider.sock", whole)
	case path.Clean(socket) != socket:
		return Address{}, fmt.Errorf("address %q: the path is not clean: write it without . or .. or a repeated or final slash", whole)
	case strings.ContainsAny(socket, "\x00\n\r?#%"):
		return Address{}, fmt.Errorf("address %q: the path holds a character that a socket's path may not", whole)
	case socket == "/":
		return Address{}, fmt.Errorf("address %q names no socket", whole)
	}

	return Address{Path: socket}, nil
}

func parseHostPort(whole, rest string) (Address, error) {
	host, portText, err := net.SplitHostPort(rest)
	if err != nil {
		return Address{}, fmt.Errorf("address %q has no host and port: %w", whole, errForms)
	}

	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || (len(portText) > 1 && portText[0] == '0') {
		return Address{}, fmt.Errorf("address %q: port %q is not a number from 1 to 65535", whole, portText)
	}

	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || ip.Is4In6() {
			return Address{}, fmt.Errorf("address %q: write the IP address without a zone, and IPv4 in its own form", whole)
		}

		return Address{Host: ip.String(), Port: uint16(port)}, nil
	}

	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if len(host) > 253 || !dnsName.MatchString(host) {
		return Address{}, fmt.Errorf("address %q: %q is neither a DNS name nor an IP address: %w", whole, host, errForms)
	}

	return Address{Host: host, Port: uint16(port)}, nil
}

// String gives the one canonical spelling, which Parse reads back.
func (a Address) String() string {
	if a.Path != "" {
		return "unix://" + a.Path
	}

	return "dns:///" + net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// Socket reports whether the address is a unix socket.
func (a Address) Socket() bool { return a.Path != "" }

// ServiceNamespace gives the namespace of a Kubernetes Service's address,
// name.namespace.svc with or without the cluster's domain; else "".
func (a Address) ServiceNamespace() string {
	labels := strings.Split(a.Host, ".")
	if len(labels) >= 3 && labels[2] == "svc" {
		return labels[1]
	}

	return ""
}

// Within reports whether the socket lies below a folder.
func (a Address) Within(dir string) bool {
	dir = path.Clean(dir)

	return a.Path != "" && path.IsAbs(dir) && strings.HasPrefix(a.Path, strings.TrimSuffix(dir, "/")+"/")
}
