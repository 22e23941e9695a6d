package server

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// memoryBuffer is how many bytes a connection in memory holds in each direction.
const memoryBuffer = 256 << 10

// MemoryListener is a listener to which only code of this process can connect,
// with DialContext. Use it with Options.PeerIdentity, and with a gRPC client as
//
//	grpc.NewClient("passthrough:///provider",
//		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
//		grpc.WithTransportCredentials(insecure.NewCredentials()))
//
// Its connections are buffered, as those of a kernel are: both sides of HTTP/2
// begin with a write, and over a net.Pipe may wait for each other without end.
type MemoryListener struct{ *bufconn.Listener }

var _ net.Listener = (*MemoryListener)(nil)

// NewMemoryListener returns a listener that is open.
func NewMemoryListener() *MemoryListener {
	return &MemoryListener{Listener: bufconn.Listen(memoryBuffer)}
}

// Accept waits for the next connection. It fails with net.ErrClosed once the
// listener is closed.
func (l *MemoryListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, net.ErrClosed
	}

	return conn, nil
}

// DialContext connects to the listener. It waits until the connection is
// accepted, and fails with net.ErrClosed once the listener is closed.
func (l *MemoryListener) DialContext(ctx context.Context) (net.Conn, error) {
	conn, err := l.Listener.DialContext(ctx)
	if err != nil && ctx.Err() == nil {
		return nil, net.ErrClosed
	}

	return conn, err
}

// Addr returns an address whose network is "memory".
func (l *MemoryListener) Addr() net.Addr { return memoryAddress{} }

type memoryAddress struct{}

// Network is not one that package net can dial.
func (memoryAddress) Network() string { return "memory" }

// String names the address in logs.
func (memoryAddress) String() string { return "memory" }
