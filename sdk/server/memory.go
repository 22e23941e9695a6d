package server

import (
	"context"
	"net"
	"sync"
)

// MemoryListener is a listener to which only code of this process can connect,
// with DialContext. Use it with Options.PeerIdentity, and with a gRPC client as
//
//	grpc.NewClient("passthrough:///provider",
//		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
//		grpc.WithTransportCredentials(insecure.NewCredentials()))
type MemoryListener struct {
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

var _ net.Listener = (*MemoryListener)(nil)

// NewMemoryListener returns a listener that is open.
func NewMemoryListener() *MemoryListener {
	return &MemoryListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next connection. It fails with net.ErrClosed once the
// listener is closed.
func (l *MemoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and DialContext. Connections stay open.
func (l *MemoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })

	return nil
}

// Addr returns an address whose network is "memory".
func (l *MemoryListener) Addr() net.Addr { return memoryAddress{} }

// DialContext connects to the listener. It waits until the connection is
// accepted, and fails with net.ErrClosed once the listener is closed.
func (l *MemoryListener) DialContext(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()

	select {
	case l.accepted <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryAddress struct{}

// Network is not one that package net can dial.
func (memoryAddress) Network() string { return "memory" }

// String names the address in logs.
func (memoryAddress) String() string { return "memory" }
