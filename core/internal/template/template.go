package template

import (
	"fmt"
	"reflect"
	"text/template"
	"time"
)

const (
	defaultMaxOutput = 1 << 20
	defaultTimeout   = 5 * time.Second
)

// Options of an Engine. What is zero has its default.
type Options struct {
	// Left and Right delimiters of actions, by default {{ and }}.
	Left, Right string
	// MaxOutput of one Render in bytes, by default 1 MiB: no Secret holds more.
	MaxOutput int
	// Timeout of one Render, by default 5 s. A Render may exceed it by the time
	// of one function call: the longest, a new RSA key, takes seconds.
	Timeout time.Duration
}

// Engine renders templates. It is safe for concurrent use.
type Engine struct {
	options   Options
	functions map[string]*function
	// known names, for the parser.
	known map[string]any
}

// New returns an engine.
func New(options Options) *Engine {
	if options.MaxOutput <= 0 {
		options.MaxOutput = defaultMaxOutput
	}

	if options.Timeout <= 0 {
		options.Timeout = defaultTimeout
	}

	e := &Engine{options: options, functions: catalog(), known: map[string]any{}}

	for _, name := range builtin() {
		e.known[name] = true
	}

	for name := range e.functions {
		e.known[name] = true
	}

	return e
}

// Check parses a template, so that a bad one is found before anything is
// fetched for it. name is shown in the error.
func (e *Engine) Check(name, text string) error {
	if _, err := e.compile(text); err != nil {
		return describe(name, err)
	}

	return nil
}

// Render renders a template. name is shown in the error, and nothing of data
// or of the output ever is. data is the template's dot, and is not changed. A
// value that the template names and data lacks is an error.
func (e *Engine) Render(name, text string, data map[string]string) ([]byte, error) {
	compiled, err := e.compile(text)
	if err != nil {
		return nil, describe(name, err)
	}

	r := &run{
		functions: e.functions,
		timeout:   e.options.Timeout,
		deadline:  time.Now().Add(e.options.Timeout),
		left:      maxProduced,
		data:      reflect.ValueOf(data).Pointer(),
		output:    output{limit: e.options.MaxOutput},
	}
	if err := r.execute(compiled, data); err != nil {
		return nil, describe(name, err)
	}

	return r.output.bytes, nil
}

func (r *run) execute(c *compiled, data map[string]string) (err error) {
	// The functions' panics are errors already, and so are text/template's own.
	// This is for unexpected ones.
	defer func() {
		if recover() != nil {
			err = fail("it cannot be executed")
		}
	}()

	t := template.New(root).Option("missingkey=error").Funcs(r.hidden())

	for name := range c.functions {
		// A function that is not in the catalog is one of text/template.
		if f, ok := r.functions[name]; ok {
			t.Funcs(template.FuncMap{name: r.wrap(name, f)})
		}
	}

	for name, tree := range c.trees {
		if _, err := t.AddParseTree(name, tree); err != nil {
			return fmt.Errorf("cannot add a template: %w", err)
		}
	}

	return t.Execute(&r.output, data)
}

// output takes what a template writes, up to a limit.
type output struct {
	bytes []byte
	limit int
}

// Write keeps p, or fails.
func (o *output) Write(p []byte) (int, error) {
	if len(p) > o.limit-len(o.bytes) {
		return 0, o.full()
	}

	o.bytes = append(o.bytes, p...)

	return len(p), nil
}

func (o *output) full() error {
	return fail("its output is larger than %d bytes", o.limit)
}
