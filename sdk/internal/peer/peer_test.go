package peer

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCallersAreKnownByTheirUser(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	for uid, want := range map[int]string{os.Getuid(): "", os.Getuid() + 1: "the caller runs as user"} {
		caller, err := (&net.Dialer{}).DialContext(t.Context(), "unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = Credentials(uid).ServerHandshake(conn)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("user %d: err = %v", uid, err)
		}

		_ = caller.Close()
		_ = conn.Close()
	}

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()

	if _, _, err := Credentials(0).ServerHandshake(near); err == nil {
		t.Error("a connection that is not a unix socket is accepted")
	}
}
