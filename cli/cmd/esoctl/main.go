// Command esoctl renders and explains an ExternalSecret as the operator does, without
// it or beside it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/external-secrets/eso/cli/internal/command"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Main(ctx, command.Environment{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Now: time.Now, Version: version, Commit: commit,
	})

	stop()
	os.Exit(code)
}
