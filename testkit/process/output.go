package process

import (
	"bytes"
	"io"
	"sync"
)

const (
	// keptLines is how many lines of output are kept for Tail.
	keptLines = 200
	// maxLine is the longest line that is kept in one piece, in bytes, so that
	// a child that writes no newline costs no memory.
	maxLine = 64 << 10
)

// Output is a writer that takes a child's output apart into lines, passes them
// on with the child's name, and keeps the last ones. It is for children that
// another library starts; Start makes its own. It is safe for concurrent use.
type Output struct {
	prefix string
	log    io.Writer
	onLine func(string)

	mu      sync.Mutex
	partial []byte
	ring    [keptLines]string
	lines   int // Number of lines seen.
}

// NewOutput returns an Output that writes "[name] line" to log, one whole line
// per Write. A nil log only keeps the lines.
func NewOutput(name string, log io.Writer) *Output {
	if log == nil {
		log = io.Discard
	}
	return &Output{prefix: "[" + name + "] ", log: log}
}

// Write takes a piece of output. It never fails: a child must not be stopped by
// the log that watches it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		o.partial = append(o.partial, line...)
		if whole || len(o.partial) >= maxLine {
			o.emit()
		}
		rest = after
	}
	return len(p), nil
}

// Tail returns the last n lines, oldest first; fewer if there are fewer or if n
// exceeds what is kept.
func (o *Output) Tail(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = max(0, min(n, o.lines, keptLines))
	tail := make([]string, 0, n)
	for i := o.lines - n; i < o.lines; i++ {
		tail = append(tail, o.ring[i%keptLines])
	}
	return tail
}

// flush ends a last line that had no newline.
func (o *Output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.partial) > 0 {
		o.emit()
	}
}

// emit passes on the line gathered so far. The caller holds mu.
func (o *Output) emit() {
	line := string(bytes.TrimSuffix(o.partial, []byte{'\r'}))
	o.partial = o.partial[:0]
	o.ring[o.lines%keptLines] = line
	o.lines++
	// A full disk or a closed file loses log lines and nothing else.
	_, _ = io.WriteString(o.log, o.prefix+line+"\n")
	if o.onLine != nil {
		o.onLine(line)
	}
}
