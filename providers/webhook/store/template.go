package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxText and maxBody bound the results of templates and of their functions,
	// in bytes.
	maxText = 64 << 10
	maxBody = 8 << 20
	// maxCalls bounds how many functions a template calls.
	maxCalls = 64
)

// Values that templates know.
const (
	nameRemoteRef = "remoteRef"
	nameSecrets   = "secrets"
	nameKey       = "key"
	nameRemoteKey = "remoteKey"
	nameProperty  = "property"
	nameVersion   = "version"
	nameValue     = "value"
	nameOwner     = "owner"
	nameAdopt     = "adopt"
	nameRevision  = "revision"
)

// vocabulary is the values that a template may use, by name; for a map with its
// keys, else nil.
type vocabulary map[string][]string

// text is a template of the config. It can use values, functions of the
// allow-list and if. It has no loops and no variables, so that its cost is
// bounded by its length.
type text struct {
	field  string
	source string
	most   bound
	parsed *template.Template
	// uses are the values that it names: those of remoteRef by their own names.
	uses map[string]bool
}

// parseText parses a template; if escape is set, the results of its actions are
// percent-encoded.
func parseText(field, source string, known vocabulary, most bound, escape bool) (*text, error) {
	parsed, err := template.New(field).Option("missingkey=error").Funcs(functions(most)).Parse(source)
	if err != nil {
		return nil, provider.InvalidConfig("%s", strings.TrimPrefix(err.Error(), "template: "))
	}

	t := &text{field: field, source: source, most: most, parsed: parsed, uses: map[string]bool{}}
	if parsed.Tree == nil || parsed.Root == nil {
		return t, nil
	}

	c := &checker{text: t, known: known, escape: escape}

	if len(parsed.Templates()) > 1 {
		return nil, c.fault(parsed.Root, "define and block are not supported")
	}

	if err := c.list(parsed.Root); err != nil {
		return nil, err
	}

	return t, nil
}

// literal returns the text of a template without actions, and whether it is one.
func (t *text) literal() (string, bool) {
	if t.parsed.Tree == nil || t.parsed.Root == nil {
		return "", true
	}

	var made strings.Builder

	for _, node := range t.parsed.Root.Nodes {
		plain, ok := node.(*parse.TextNode)
		if !ok {
			return "", false
		}

		made.Write(plain.Text)
	}

	return made.String(), true
}

// prefix returns the text before the first action of the template.
func (t *text) prefix() string {
	if t.parsed.Tree == nil || t.parsed.Root == nil || len(t.parsed.Root.Nodes) == 0 {
		return ""
	}

	if plain, ok := t.parsed.Root.Nodes[0].(*parse.TextNode); ok {
		return string(plain.Text)
	}

	return ""
}

// constant reports whether the result of the template depends on the config only.
func (t *text) constant() bool {
	for used := range t.uses {
		if used != nameSecrets {
			return false
		}
	}

	return true
}

// render executes the template. Its errors have the position and the error of a
// function, which contains no value.
func (t *text) render(values map[string]any) (string, error) {
	made := &limited{most: int(t.most)}
	if err := t.parsed.Execute(made, values); err != nil {
		if errors.Is(err, errTooLong) {
			return "", t.invalid("%v", t.most.exceeded())
		}

		return "", t.invalid("%s", strings.TrimPrefix(err.Error(), "template: "))
	}

	return made.String(), nil
}

// invalid returns an error of the config if the template is constant, else one of
// the request.
func (t *text) invalid(format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if !strings.HasPrefix(message, t.field) {
		message = t.field + ": " + message
	}

	if t.constant() {
		return provider.InvalidConfig("%s", message)
	}

	return provider.InvalidRequest("%s", message)
}

var errTooLong = errors.New("the text is too long")

// limited is a writer that fails beyond a number of bytes.
type limited struct {
	strings.Builder

	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.most {
		return 0, errTooLong
	}

	return l.Builder.Write(p)
}

// checker walks a template and refuses everything that is not on the allow-list.
type checker struct {
	text   *text
	known  vocabulary
	escape bool
	calls  int
}

func (c *checker) fault(node parse.Node, format string, args ...any) error {
	line := 1 + strings.Count(c.text.source[:min(int(node.Position()), len(c.text.source))], "\n")

	return provider.InvalidConfig("%s:%d: %s", c.text.field, line, fmt.Sprintf(format, args...))
}

func (c *checker) list(list *parse.ListNode) error {
	if list == nil {
		return nil
	}

	for _, node := range list.Nodes {
		if err := c.node(node); err != nil {
			return err
		}
	}

	return nil
}

func (c *checker) node(node parse.Node) error {
	switch node := node.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		if err := c.pipe(node.Pipe); err != nil {
			return err
		}

		if c.escape {
			call := parse.NewIdentifier(escapeFunction).SetTree(c.text.parsed.Tree).SetPos(node.Pos)
			node.Pipe.Cmds = append(node.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: node.Pos, Args: []parse.Node{call}})
		}

		return nil
	case *parse.IfNode:
		if err := c.pipe(node.Pipe); err != nil {
			return err
		}

		if err := c.list(node.List); err != nil {
			return err
		}

		return c.list(node.ElseList)
	default:
		return c.fault(node, "a template has values, functions and if, and nothing else: no range, with, template or break")
	}
}

func (c *checker) pipe(pipe *parse.PipeNode) error {
	if len(pipe.Decl) > 0 {
		return c.fault(pipe, "variables are not supported")
	}

	for _, command := range pipe.Cmds {
		for _, argument := range command.Args {
			if err := c.argument(argument); err != nil {
				return err
			}
		}
	}

	return nil
}

func (c *checker) argument(node parse.Node) error {
	switch node := node.(type) {
	case *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	case *parse.PipeNode:
		return c.pipe(node)
	case *parse.FieldNode:
		return c.field(node, node.Ident)
	case *parse.VariableNode:
		if node.Ident[0] == "$" && len(node.Ident) > 1 {
			return c.field(node, node.Ident[1:])
		}

		return c.fault(node, "variables are not supported")
	case *parse.IdentifierNode:
		if c.calls++; c.calls > maxCalls {
			return c.fault(node, "more than %d functions are called", maxCalls)
		}

		if !slices.Contains(allowed(), node.Ident) {
			return c.fault(node, "function %q is not one of %s", node.Ident, strings.Join(allowed(), ", "))
		}

		return nil
	default:
		return c.fault(node, "%s: name a value, such as .remoteRef.key", node)
	}
}

// field checks that a value exists, and records its use.
func (c *checker) field(node parse.Node, path []string) error {
	keys, known := c.known[path[0]]
	shown := "." + strings.Join(path, ".")

	switch {
	case !known:
		return c.fault(node, "%s is not known here; known are %s", shown, strings.Join(c.names(), ", "))
	case len(path) == 1 && path[0] == nameRemoteRef:
		// As a map it may be used with index, and any key.
		for _, key := range keys {
			c.use(path[0], key)
		}

		return nil
	case len(path) == 1:
		c.use(path[0], "")

		return nil
	case len(path) == 2 && slices.Contains(keys, path[1]):
		c.use(path[0], path[1])

		return nil
	case path[0] != nameRemoteRef:
		return c.fault(node, "%s is not one of spec.secrets", shown)
	default:
		return c.fault(node, "%s is not known: .remoteRef has %s", shown, strings.Join(keys, ", "))
	}
}

func (c *checker) use(name, key string) {
	switch {
	case name == nameRemoteRef && key == nameRemoteKey:
		c.text.uses[nameKey] = true
	case name == nameRemoteRef:
		c.text.uses[key] = true
	case slices.Contains([]string{nameValue, nameOwner, nameAdopt, nameRevision}, name):
		c.text.uses[name] = true
	default:
		c.text.uses[nameSecrets] = true
	}
}

func (c *checker) names() []string {
	names := make([]string, 0, len(c.known))
	for name := range c.known {
		names = append(names, "."+name)
	}

	slices.Sort(names)

	return names
}
