package kit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/external-secrets/eso/sdk/internal/kit/internal/apiserver"
)

const (
	// startTimeout and stopTimeout are what a provider gets unless the target
	// says otherwise.
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
	// maxOutput of a provider is kept to look for values in.
	maxOutput = 8 << 20
)

// process is a provider that the kit has started.
type process struct {
	name    string
	command *exec.Cmd
	dir     string
	timeout time.Duration
	output  *output
	done    chan struct{}
	err     error // Set before done is closed.
}

// output keeps what a process prints, and passes it on.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	next io.Writer
}

// Write takes output.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if room := maxOutput - o.text.Len(); room > 0 {
		o.text.Write(text[:min(room, len(text))])
	}

	return o.next.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.String()
}

// start starts the provider, with certificates where it needs them.
func (r *run) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return fmt.Errorf("cannot create a folder for the provider's certificate: %w", err)
	}

	if r.target.Address == "" {
		if r.target.Address, err = freeAddress(); err != nil {
			return err
		}
	}

	if r.pki != nil && r.pki.key != nil {
		if err := r.pki.write(dir, r.serverName()); err != nil {
			return err
		}
	}

	kubeconfig := filepath.Join(dir, "kubeconfig")

	if len(r.target.objects) > 0 {
		if r.apiServer, err = apiserver.Start(ctx, r.target.objects); err != nil {
			return err
		}

		if err := os.WriteFile(kubeconfig, r.apiServer.Kubeconfig(), 0o600); err != nil {
			return fmt.Errorf("cannot write the provider's kubeconfig: %w", err)
		}
	}

	fill := strings.NewReplacer("{address}", r.target.Address, "{tlsDir}", dir, "{kubeconfig}", kubeconfig)

	var args []string
	for _, arg := range r.target.Command.Args {
		args = append(args, fill.Replace(arg))
	}

	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	command.Env = os.Environ()

	for _, entry := range r.target.Command.Env {
		command.Env = append(command.Env, fill.Replace(entry))
	}

	p := &process{
		name: filepath.Base(args[0]), command: command, dir: dir, timeout: r.target.Command.StopTimeout.or(stopTimeout),
		output: &output{next: r.options.Output}, done: make(chan struct{}),
	}
	command.Stdout, command.Stderr = p.output, p.output

	if err := command.Start(); err != nil {
		_ = os.RemoveAll(dir)

		return fmt.Errorf("cannot start the provider: %w; command.args names it", err)
	}

	go func() {
		p.err = command.Wait()
		close(p.done)
	}()

	r.process = p

	return nil
}

// ended returns the error of the process; nil means status 0.
func (p *process) ended() error {
	<-p.done

	return p.err
}

// terminate sends SIGTERM to the process.
func (p *process) terminate() { _ = p.command.Process.Signal(syscall.SIGTERM) }

// wait waits for the process to exit. It reports whether it did so by itself;
// otherwise it is killed.
func (p *process) wait(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()

	select {
	case <-p.done:
		return true
	case <-timer.C:
		_ = p.command.Process.Kill()
		<-p.done

		return false
	}
}

// stop kills the process if it is still running.
func (p *process) stop() {
	p.terminate()
	p.wait(p.timeout)

	_ = os.RemoveAll(p.dir)
}

// freeAddress returns a loopback address with an unused port.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	defer listener.Close()

	return listener.Addr().String(), nil
}
