package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// refusalPause is how long the same refusal is not logged again: whoever can
	// reach the port could fill the log otherwise.
	refusalPause = 10 * time.Second
	// maxRefusals bounds the refusals that are told apart.
	maxRefusals = 64
)

// refusals tells of callers that were not let in: they themselves often see a
// closed connection and no more.
type refusals struct {
	credentials.TransportCredentials

	meter *meter
	log   *slog.Logger
	told  *told
}

// told is when a refusal was last logged, by its text.
type told struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// tellRefusals makes credentials tell whom they refuse.
func tellRefusals(c credentials.TransportCredentials, meter *meter, log *slog.Logger) credentials.TransportCredentials {
	return &refusals{TransportCredentials: c, meter: meter, log: log, told: &told{last: map[string]time.Time{}}}
}

// ServerHandshake secures a connection, or tells why not.
func (r *refusals) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := r.TransportCredentials.ServerHandshake(conn)
	// One that says nothing, such as the kubelet's probe, is nobody's failure.
	if err == nil || errors.Is(err, io.EOF) {
		return secured, info, err
	}

	r.meter.refused.Inc()

	if r.told.news(err.Error(), time.Now()) {
		r.log.Warn("refused a caller", "error", err.Error(), "address", conn.RemoteAddr().String())
	}

	return secured, info, err
}

// Clone gives equal credentials.
func (r *refusals) Clone() credentials.TransportCredentials {
	return &refusals{TransportCredentials: r.TransportCredentials.Clone(), meter: r.meter, log: r.log, told: r.told}
}

// news tells whether something has not been logged of late.
func (t *told) news(text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	// A clock that jumped back must not silence anything.
	if since := now.Sub(t.last[text]); since >= 0 && since < refusalPause {
		return false
	}

	if len(t.last) >= maxRefusals {
		clear(t.last)
	}

	t.last[text] = now

	return true
}
