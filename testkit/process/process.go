package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// outputGrace is how long a child's output is still read after the child has
// ended, for the case that one of its own children holds the pipe open.
const outputGrace = 2 * time.Second

// Options say what to run and where its output goes.
type Options struct {
	// Name stands for the process in errors and before each line of its
	// output. Required.
	Name string
	// Path is the program's file. Required.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment as "key=value"; nil means that of the
	// calling process.
	Env []string
	// Dir is the working directory; empty means that of the calling process.
	Dir string
	// Log receives standard output and standard error, one whole line per
	// Write, as "[name] line". Processes may share a writer if it is safe for
	// concurrent use, as a file is. Nil discards the lines; LogTail has the
	// last ones all the same.
	Log io.Writer
	// OnLine, when set, is called with each line of output, in order and
	// without the name. It must not block: the process waits for it.
	OnLine func(line string)
	// HoldStdin gives the process a standard input that stays open and empty
	// for as long as the calling process lives and Stop is not called. A
	// program that ends at the end of its input thereby never outlives its
	// parent, on any operating system. Without it standard input is empty.
	HoldStdin bool
}

// Process is a child process that has been started. Its methods are safe for
// concurrent use, also after it has ended.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	output *Output
	done   chan struct{}
	err    error // Set before done is closed.
}

// Start runs a program and returns once it has been started, not when it is
// ready for anything. A ctx that has ended already prevents the start; after
// that it has no influence on the process, which runs until it ends by itself
// or by Stop or Kill.
//
// On Linux the kernel kills the process when the calling process dies, however
// that happens. Everywhere it is in a process group of its own, so that an
// interrupt typed at the terminal reaches only the caller, which then stops
// its children in the order that suits them.
func Start(ctx context.Context, opts Options) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", opts.Name, err)
	}
	p := &Process{
		name:   opts.Name,
		cmd:    exec.Command(opts.Path, opts.Args...),
		output: NewOutput(opts.Name, opts.Log),
		done:   make(chan struct{}),
	}
	p.output.onLine = opts.OnLine
	p.cmd.Env = opts.Env
	p.cmd.Dir = opts.Dir
	p.cmd.Stdout = p.output
	p.cmd.Stderr = p.output
	p.cmd.WaitDelay = outputGrace
	p.cmd.SysProcAttr = sysProcAttr()
	if opts.HoldStdin {
		stdin, err := p.cmd.StdinPipe()
		if err != nil {
			return nil, fmt.Errorf("cannot start %s: %w", opts.Name, err)
		}
		p.stdin = stdin
	}

	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", opts.Name, err)
	}
	return p, nil
}

// run starts the child and waits for its end on one operating system thread:
// the kernel ties the parent-death signal to the thread that forked, and would
// kill the child when the Go runtime retires that thread.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	err = p.cmd.Wait()
	p.output.flush()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		p.err = fmt.Errorf("%s ended: %w", p.name, err)
	}
	close(p.done)
}

// PID is the process's id, also after its end.
func (p *Process) PID() int {
	return p.cmd.Process.Pid
}

// Done is closed when the process has ended and all its output has been read.
func (p *Process) Done() <-chan struct{} {
	return p.done
}

// Err says how the process ended: nil for exit status 0, otherwise an error
// that names the process and its exit status or the signal that ended it,
// including one sent by Stop or Kill. It is nil while the process runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// LogTail returns the last n lines of output, oldest first; fewer if there are
// fewer or if n exceeds what is kept.
func (p *Process) LogTail(n int) []string {
	return p.output.Tail(n)
}

// Stop asks the process to end (SIGTERM, and the end of a held standard input)
// and waits until it has. A process that takes longer than the timeout is
// killed, which Stop reports as an error; it is gone in either case. Stopping
// a process that has ended does nothing.
func (p *Process) Stop(timeout time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("cannot stop %s: %w", p.name, err)
	}
	if p.stdin != nil {
		// The child may have closed its end; there is nothing to lose here.
		_ = p.stdin.Close()
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	select {
	case <-p.done: // At the same moment.
		return nil
	default:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("cannot stop %s within %s: killed it", p.name, timeout)
}

// Kill ends the process at once (SIGKILL) and waits until it has ended.
// Killing a process that has ended does nothing.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("cannot kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// signal treats a process that has ended as signalled.
func (p *Process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
