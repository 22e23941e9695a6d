package motoserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// SlowRegion is where every request takes SlowTime.
	SlowRegion = "sa-east-1"
	// SlowTime is what a request of SlowRegion takes.
	SlowTime = 2500 * time.Millisecond

	// maxBody is far above what a test sends, in bytes.
	maxBody = 4 << 20
)

// proxy passes requests on to moto, counts them, and refuses some.
type proxy struct {
	address   string
	server    *http.Server
	transport *http.Transport
	served    chan error

	mu sync.Mutex
	// counts of requests, by the access key that signed them and by operation.
	counts map[string]map[string]int
	// refused access keys, and whether they are so because they expired.
	refused map[string]refusal
}

func startProxy(target string) (*proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("cannot pass requests on to %s: %w", target, err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot pass requests on to %s: %w", target, err)
	}

	p := &proxy{
		address: "http://" + listener.Addr().String(),
		// Many more requests than the default of 2 may be under way at once.
		transport: &http.Transport{MaxIdleConnsPerHost: 100},
		served:    make(chan error, 1),
		counts:    map[string]map[string]int{},
		refused:   map[string]refusal{},
	}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: p.transport,
		// A client that goes away is its own test's business.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) }),
		ErrorLog:          forward.ErrorLog,
	}

	go func() { p.served <- p.server.Serve(listener) }()

	return p, nil
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)

		return
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	key, region := scope(r.Header.Get("Authorization"))

	p.mu.Lock()
	refused := p.refused[key]
	if r.Header.Get(callHeader) == "" {
		if p.counts[key] == nil {
			p.counts[key] = map[string]int{}
		}

		p.counts[key][operation(r.Header.Get("X-Amz-Target"), body)]++
	}
	p.mu.Unlock()

	if region == SlowRegion {
		select {
		case <-time.After(SlowTime):
		case <-r.Context().Done():
			return
		}
	}

	if refused != accepted {
		refused.write(w, r.Header.Get("X-Amz-Target") != "")

		return
	}

	forward.ServeHTTP(w, r)
}

// refusal says why an access key is refused.
type refusal int

const (
	accepted refusal = iota
	unknown
	expired
)

// write answers as AWS does, in the protocol of the service.
func (f refusal) write(w http.ResponseWriter, asJSON bool) {
	message, inJSON, inXML := "The security token included in the request is invalid.", "UnrecognizedClientException", "InvalidClientTokenId"
	if f == expired {
		message, inJSON, inXML = "The security token included in the request is expired", "ExpiredTokenException", "ExpiredToken"
	}

	w.Header().Set("X-Amzn-Requestid", "00000000-0000-4000-8000-000000000000")

	if asJSON {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":%q}`, inJSON, message)

		return
	}

	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, inXML, message)
}

// operation of a request: what follows the dot of the target, or the action of
// a form.
func operation(target string, body []byte) string {
	if _, name, found := strings.Cut(target, "."); found {
		return name
	}

	form, err := url.ParseQuery(string(body))
	if err != nil {
		return ""
	}

	return form.Get("Action")
}

// scope gives the access key and the region that a request is signed for.
func scope(authorization string) (accessKeyID, region string) {
	_, credential, _ := strings.Cut(authorization, "Credential=")
	parts := strings.Split(credential, "/")

	const regionPart = 2
	if len(parts) <= regionPart {
		return "", ""
	}

	return parts[0], parts[regionPart]
}

func (p *proxy) requests() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()

	all := map[string]int{}

	for _, counts := range p.counts {
		for operation, n := range counts {
			all[operation] += n
		}
	}

	return all
}

func (p *proxy) requestsBy(accessKeyID string) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return maps.Clone(p.counts[accessKeyID])
}

func (p *proxy) refuse(accessKeyID string, why refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.refused[accessKeyID] = why
}

// stop cuts off requests that are under way.
func (p *proxy) stop() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}

	p.transport.CloseIdleConnections()

	if err != nil {
		return fmt.Errorf("cannot stop passing requests on: %w", err)
	}

	return nil
}
