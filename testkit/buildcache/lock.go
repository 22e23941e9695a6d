//go:build unix

package buildcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Lock takes the lock that a file represents, and waits for the process that
// holds it. Progress receives a line at every interval of a long wait; it may
// not be nil. The lock is released when unlock is called or the process ends.
func Lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	return lock(ctx, path, heartbeat, func() {
		_, _ = fmt.Fprintf(progress, "waiting for another process that has locked %s\n", path)
	})
}

const pollInterval = 200 * time.Millisecond

// lock takes the lock that the file represents, waiting for its holder;
// the operating system releases it when its holder exits. Waiting is called
// when there is a need to wait, and again at every interval of it. The file stays: removing it would let two
// processes hold locks on different files of the same name.
func lock(ctx context.Context, path string, interval time.Duration, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the build lock: %w", err)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var told time.Time
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing the file gives the lock back.
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("cannot take the build lock %s: %w", path, err)
		}
		if now := time.Now(); now.Sub(told) >= interval {
			told = now
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("cannot take the build lock %s: %w", path, ctx.Err())
		case <-ticker.C:
		}
	}
}
