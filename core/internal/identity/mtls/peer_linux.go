package mtls

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID asks the kernel who is at the other end.
func peerUID(conn net.Conn) (int, error) {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("cannot identify the peer of a %T", conn)
	}

	raw, err := local.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("cannot identify the peer of the unix socket: %w", err)
	}

	var (
		peer   *unix.Ucred
		failed error
	)

	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("cannot identify the peer of the unix socket: %w", err)
	}

	if failed != nil {
		return 0, fmt.Errorf("cannot identify the peer of the unix socket: %w", failed)
	}

	return int(peer.Uid), nil
}
