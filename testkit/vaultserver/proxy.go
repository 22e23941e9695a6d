package vaultserver

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// proxy passes requests on to a server and counts them.
type proxy struct {
	address   string
	server    *http.Server
	transport *http.Transport
	served    chan error

	mu     sync.Mutex
	counts map[string]int
}

func startProxy(target string) (*proxy, error) {
	url, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("cannot count requests to %s: %w", target, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot count requests to %s: %w", target, err)
	}
	p := &proxy{
		address: "http://" + listener.Addr().String(),
		// Many more requests than the default of 2 may be under way at once.
		transport: &http.Transport{MaxIdleConnsPerHost: 1000},
		served:    make(chan error, 1),
		counts:    map[string]int{},
	}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(url) },
		Transport: p.transport,
		// A client that goes away is its own test's business.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.count(r)
			forward.ServeHTTP(w, r)
		}),
		ErrorLog: forward.ErrorLog,
	}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

func (p *proxy) count(r *http.Request) {
	method := r.Method
	if list, _ := strconv.ParseBool(r.URL.Query().Get("list")); list && method == http.MethodGet {
		method = "LIST"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[method+" "+r.URL.Path]++
}

func (p *proxy) requests() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// stop cuts off requests that are under way.
func (p *proxy) stop() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	p.transport.CloseIdleConnections()
	if err != nil {
		return fmt.Errorf("cannot stop counting requests: %w", err)
	}
	return nil
}
