//go:build !linux

package peer

import (
	"fmt"
	"net"
	"runtime"
)

// userOf fails: it is implemented on Linux only.
func userOf(net.Conn) (int, error) {
	return 0, fmt.Errorf("cannot determine the unix socket's peer on %s", runtime.GOOS)
}
