package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// maxURL bounds a URL, in bytes.
const maxURL = 16 << 10

// Operations, as they are counted.
const (
	operationRead   = "read"
	operationPush   = "push"
	operationDelete = "delete"
	operationExists = "exists"
)

// endpoint is one kind of request of a config.
type endpoint struct {
	operation string
	method    string
	// origin is scheme and host of the URL, as the config has them.
	origin  *url.URL
	url     *text
	headers map[string]*text
	body    *text
	uses    map[string]bool
}

// values are the inputs of a request.
type values struct {
	key, property, version, value, owner, revision string
	adopt                                          bool
}

// call is the request of an endpoint for given values.
type call struct {
	operation, method string
	// shown is its name in errors: method and origin, and nothing from a
	// template.
	shown  string
	url    *url.URL
	header http.Header
	body   string
}

// section is the part of a config that defines an endpoint.
type section struct {
	field, operation, method, url, urlField, body string
	headers                                       map[string]header
	known                                         vocabulary
}

// header is the template of a header, and the field that defines it.
type header struct{ field, source string }

// headersOf returns headers by their canonical names.
func headersOf(field string, templates map[string]v2alpha1.HeaderTemplate, into map[string]header) error {
	here := map[string]bool{}

	for name, source := range templates {
		at := fmt.Sprintf("%s.headers[%s]", field, name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)

		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return provider.InvalidConfig("%s.headers: %q is no name of a header", field, name)
		case slices.Contains(ownHeaders(), canonical):
			return provider.InvalidConfig("%s: this header is the connection's own: leave it out", at)
		case here[canonical]:
			return provider.InvalidConfig("%s: the header is there twice", at)
		}

		here[canonical] = true
		into[canonical] = header{field: at, source: string(source)}
	}

	return nil
}

// ownHeaders returns the headers that no config may set: they define how a
// message is decoded, or its destination.
func ownHeaders() []string {
	return []string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

// newEndpoint checks and parses a section.
func newEndpoint(s section) (*endpoint, error) {
	e := &endpoint{operation: s.operation, method: s.method, headers: map[string]*text{}, uses: map[string]bool{}}

	// A folded text of YAML ends with a line break.
	address, err := parseText(s.urlField, strings.TrimSpace(s.url), s.known, maxText, true)
	if err != nil {
		return nil, err
	}

	e.url = address
	if e.origin, err = origin(address); err != nil {
		return nil, provider.InvalidConfig("%s: %v", s.urlField, err)
	}

	for name, template := range s.headers {
		if e.headers[name], err = parseText(template.field, template.source, s.known, maxText, false); err != nil {
			return nil, err
		}
	}

	if e.body, err = parseText(s.field+".body", s.body, s.known, maxBody, false); err != nil {
		return nil, err
	}

	for _, t := range e.texts() {
		for used := range t.uses {
			e.uses[used] = true
		}
	}

	return e, nil
}

func (e *endpoint) texts() []*text {
	all := []*text{e.url, e.body}
	for _, t := range e.headers {
		all = append(all, t)
	}

	return all
}

// beginning returns the part of a URL that may not contain a template: up to the
// end of the host.
var beginning = regexp.MustCompile(`^https?://[^/?#\\\s]+[/?#]`)

// origin returns scheme and host of a template, which may not depend on a value.
func origin(address *text) (*url.URL, error) {
	start := address.prefix()
	if _, literal := address.literal(); !literal && !beginning.MatchString(start) {
		return nil, errors.New("scheme, host and the slash after it must be plain text, as in https://api.example.com/{{ .remoteRef.key }}: no value may decide where a request goes")
	}

	// What follows the host may end in the middle of an escape.
	if found := beginning.FindString(start); found != "" {
		start = found[:len(found)-1]
	}

	parsed, err := url.Parse(start)

	switch {
	case err != nil:
		// The library quotes the URL, which may contain a password.
		return nil, errors.New("it is no URL, such as https://api.example.com/secrets")
	case parsed.User != nil:
		return nil, errors.New("no user and password may stand in a URL: use a header, such as Authorization, and spec.secrets")
	case parsed.Scheme != "https" && parsed.Scheme != "http", parsed.Hostname() == "":
		return nil, errors.New("it does not begin with http:// or https:// and a host")
	}

	return &url.URL{Scheme: parsed.Scheme, Host: parsed.Host}, nil
}

// data returns the values for templates.
func (s *Store) data(v values) map[string]any {
	data := map[string]any{
		nameRemoteRef: map[string]string{nameKey: v.key, nameRemoteKey: v.key, nameProperty: v.property, nameVersion: v.version},
		nameSecrets:   s.single,
		nameValue:     v.value,
		nameOwner:     v.owner,
		nameAdopt:     v.adopt,
		nameRevision:  v.revision,
	}

	for name, keys := range s.secrets {
		data[name] = keys
	}

	return data
}

// render returns the request for given values.
func (e *endpoint) render(data map[string]any) (*call, error) {
	c := &call{operation: e.operation, method: e.method, shown: e.method + " " + e.origin.String(), header: http.Header{}}

	made, err := e.url.render(data)
	if err != nil {
		return nil, err
	}

	if c.url, err = e.locate(made); err != nil {
		return nil, e.url.invalid("%v", err)
	}

	for name, template := range e.headers {
		value, err := template.render(data)
		if err != nil {
			return nil, err
		}

		switch value = strings.Trim(value, " \t"); {
		case value == "":
		case strings.ContainsAny(value, "\r\n"):
			return nil, template.invalid("the value holds a line break, which no header can: does a key of a Secret end with one? Then add | trim")
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, template.invalid("the value holds what no header can")
		default:
			c.header.Set(name, value)
		}
	}

	if c.body, err = e.body.render(data); err != nil {
		return nil, err
	}

	return c, nil
}

// locate checks the URL of a template: it must have the origin of the config, and
// no value may leave its path segment.
func (e *endpoint) locate(made string) (*url.URL, error) {
	if len(made) > maxURL {
		return nil, fmt.Errorf("the URL has more than %d bytes", maxURL)
	}

	if strings.ContainsFunc(made, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("the URL holds a space or a line break: write it on one line")
	}

	u, err := url.Parse(made)
	if err != nil {
		return nil, errors.New("what the template makes is no URL")
	}

	if u.Scheme != e.origin.Scheme || u.Host != e.origin.Host || u.User != nil || u.Opaque != "" {
		return nil, errors.New("what the template makes leads to another host")
	}

	for part := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return nil, errors.New("a part of the path is . or .., which leads elsewhere")
		}
	}

	u.Fragment, u.RawFragment = "", ""

	return u, nil
}

// identity is equal for calls that are the same request.
func (c *call) identity() string {
	sum := sha256.New()
	write := func(part string) { fmt.Fprintf(sum, "%d:%s", len(part), part) }

	write(c.method)
	write(c.url.String())

	names := make([]string, 0, len(c.header))
	for name := range c.header {
		names = append(names, name)
	}

	slices.Sort(names)

	for _, name := range names {
		write(name)
		write(c.header.Get(name))
	}

	write(c.body)

	return hex.EncodeToString(sum.Sum(nil))
}
