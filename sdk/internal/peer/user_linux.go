package peer

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// userOf returns the user of the peer, which the kernel reports.
func userOf(conn net.Conn) (int, error) {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("cannot determine the peer of a %T", conn)
	}

	raw, err := local.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("cannot determine the unix socket's peer: %w", err)
	}

	var (
		peer   *unix.Ucred
		optErr error
	)

	if err := raw.Control(func(fd uintptr) {
		peer, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("cannot determine the unix socket's peer: %w", err)
	}

	if optErr != nil {
		return 0, fmt.Errorf("cannot determine the unix socket's peer: %w", optErr)
	}

	return int(peer.Uid), nil
}
