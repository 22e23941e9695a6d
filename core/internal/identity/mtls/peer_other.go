//go:build !linux

package mtls

import (
	"fmt"
	"net"
	"runtime"
)

// peerUID refuses: who is at the other end is asked of Linux only.
func peerUID(net.Conn) (int, error) {
	return 0, fmt.Errorf("cannot identify the peer of a unix socket on %s", runtime.GOOS)
}
