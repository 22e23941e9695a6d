//go:build !linux

package peer

import (
	"fmt"
	"net"
	"runtime"
)

// userOf refuses: who is at the other end is asked of Linux only.
func userOf(net.Conn) (int, error) {
	return 0, fmt.Errorf("cannot tell the unix socket's peer on %s", runtime.GOOS)
}
