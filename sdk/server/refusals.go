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
	// refusalPause is how long the same refusal is not logged again: a client that
	// can reach the port could fill the log otherwise.
	refusalPause = 10 * time.Second
	// maxRefusals bounds the distinct refusals that are remembered.
	maxRefusals = 64
)

// refusals are credentials that log and count callers that they refuse. Such a
// caller itself often sees only a closed connection.
type refusals struct {
	credentials.TransportCredentials

	metrics *metrics
	log     *slog.Logger
	logged  *refusalLog
}

// refusalLog records when a refusal was last logged, by its text.
type refusalLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// logRefusals returns credentials that log and count the callers that c refuses.
func logRefusals(c credentials.TransportCredentials, metrics *metrics, log *slog.Logger) credentials.TransportCredentials {
	return &refusals{TransportCredentials: c, metrics: metrics, log: log, logged: &refusalLog{last: map[string]time.Time{}}}
}

// ServerHandshake authenticates the caller of a connection.
func (r *refusals) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := r.TransportCredentials.ServerHandshake(conn)
	// A connection that sends nothing, such as the kubelet's probe, is no refusal.
	if err == nil || errors.Is(err, io.EOF) {
		return secured, info, err
	}

	r.metrics.refused.Inc()

	if r.logged.due(err.Error(), time.Now()) {
		r.log.Warn("refused a caller", "error", err.Error(), "address", conn.RemoteAddr().String())
	}

	return secured, info, err
}

// Clone returns equal credentials.
func (r *refusals) Clone() credentials.TransportCredentials {
	return &refusals{TransportCredentials: r.TransportCredentials.Clone(), metrics: r.metrics, log: r.log, logged: r.logged}
}

// due reports whether a text has not been logged within refusalPause, and records
// it.
func (t *refusalLog) due(text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	// A clock that was set back must not stop the logging.
	if since := now.Sub(t.last[text]); since >= 0 && since < refusalPause {
		return false
	}

	if len(t.last) >= maxRefusals {
		clear(t.last)
	}

	t.last[text] = now

	return true
}
