package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
)

// settling is how long processes get to come to rest after their start.
const settling = 20 * time.Second

// footprint measures what the operator and each provider weigh: the program,
// the modules in it, and its memory when it has nothing to do.
func (b *bench) footprint(ctx context.Context) error {
	b.result.Conditions = fmt.Sprintf(
		"Programs as the Go tool links them, with debug information; modules are those that a program holds code of, besides its own. "+
			"Memory is the resident set %s after the start, registered, with no store.", settling,
	)

	programs, err := filepath.Glob(filepath.Join(b.binaries, "*"))
	if err != nil {
		return fmt.Errorf("cannot find the programs: %w", err)
	}

	if err := b.product.StartOperator(ctx); err != nil {
		return err
	}

	for _, program := range programs {
		if name, ok := strings.CutPrefix(filepath.Base(program), "provider-"); ok {
			b.say("starting the %s provider ...", name)

			if _, err := b.product.StartProvider(ctx, name); err != nil {
				return err
			}
		}
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settling):
	}

	processes, err := measure.ReadProcesses()
	if err != nil {
		return err
	}

	for _, program := range programs {
		name := filepath.Base(program)

		file, err := os.Stat(program)
		if err != nil {
			return fmt.Errorf("cannot weigh a program: %w", err)
		}

		build, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("cannot read what %s is built from: %w", name, err)
		}

		b.result.Figure(name+": program", mebibytes(file.Size()), "MiB")
		b.result.Figure(name+": modules", float64(len(build.Deps)), "")
		b.result.Figure(name+": idle memory", mebibytes(processes[name].Resident), "MiB")
	}

	return nil
}
