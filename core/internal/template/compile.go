package template

import (
	"strings"
	"text/template/parse"
)

const (
	// root is the name of the template itself; no template that it defines can
	// have it by accident.
	root = "(root)"

	// Bounds of a template's text. They keep the parser's and the executor's
	// recursion, and with it their stacks, small.
	maxText    = 1 << 20
	maxActions = 20000
	maxNesting = 200

	// The functions that compile inserts. Templates cannot name them: the
	// parser does not know them.
	callEnter = "_enter"
	callLeave = "_leave"
	callTick  = "_tick"
	callField = "_field"
	callPrint = "_print"
)

// compiled is a parsed template whose trees call back for everything that may
// take long, fail with a value in its hands, or reach a method.
type compiled struct {
	trees     map[string]*parse.Tree
	functions map[string]bool
	// known are the functions that templates may call.
	known map[string]any
	text  string
}

func (e *Engine) compile(text string) (*compiled, error) {
	if len(text) > maxText {
		return nil, fail("it is larger than %d bytes", maxText)
	}

	left := e.options.Left
	if left == "" {
		left = "{{"
	}

	if strings.Count(text, left) > maxActions {
		return nil, fail("it has more than %d actions", maxActions)
	}

	// The rewriter checks functions: its errors say why one is not available.
	parser, trees := parse.New(root), map[string]*parse.Tree{}
	parser.Mode = parse.SkipFuncCheck

	if _, err := parser.Parse(text, e.options.Left, e.options.Right, trees); err != nil {
		return nil, err
	}

	c := &compiled{trees: trees, functions: map[string]bool{}, known: e.known, text: text}

	for _, tree := range trees {
		w := &rewriter{compiled: c, tree: tree}
		w.list(tree.Root, 0)

		if w.err != nil {
			return nil, w.err
		}

		tree.Root.Nodes = append(append([]parse.Node{action(callEnter, 0)}, tree.Root.Nodes...), action(callLeave, 0))
	}

	return c, nil
}

// rewriter changes one tree in place.
type rewriter struct {
	compiled *compiled
	tree     *parse.Tree
	err      error
}

func (w *rewriter) fail(line int, format string, args ...any) {
	if w.err == nil {
		w.err = &located{line: line, err: fail(format, args...)}
	}
}

// lineOf is the line of a node that has none of its own.
func (w *rewriter) lineOf(node parse.Node) int {
	return 1 + strings.Count(w.compiled.text[:min(int(node.Position()), len(w.compiled.text))], "\n")
}

func (w *rewriter) list(list *parse.ListNode, depth int) {
	if list == nil || w.err != nil {
		return
	}

	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			w.pipe(node.Pipe, depth+1)

			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, command(node.Pos, identifier(callPrint, node.Pos)))
			}
		case *parse.IfNode:
			w.branch(&node.BranchNode, depth+1)
		case *parse.WithNode:
			w.branch(&node.BranchNode, depth+1)
		case *parse.RangeNode:
			w.branch(&node.BranchNode, depth+1)
			node.List.Nodes = append([]parse.Node{action(callTick, node.Pos)}, node.List.Nodes...)
		case *parse.TemplateNode:
			if w.compiled.trees[node.Name] == nil {
				w.fail(node.Line, "it calls a template that it does not define")
			}

			w.pipe(node.Pipe, depth+1)
		}
	}
}

func (w *rewriter) branch(branch *parse.BranchNode, depth int) {
	if depth > maxNesting {
		w.fail(branch.Line, "it is nested deeper than %d levels", maxNesting)

		return
	}

	w.pipe(branch.Pipe, depth+1)
	w.list(branch.List, depth)
	w.list(branch.ElseList, depth)
}

func (w *rewriter) pipe(pipe *parse.PipeNode, depth int) {
	if pipe == nil || w.err != nil {
		return
	}

	if depth > maxNesting {
		w.fail(pipe.Line, "it is nested deeper than %d levels", maxNesting)

		return
	}

	for _, cmd := range pipe.Cmds {
		w.command(cmd, depth)
	}
}

// command rewrites the arguments of a command, and the command itself if it
// accesses a field.
func (w *rewriter) command(cmd *parse.CommandNode, depth int) {
	for i := range cmd.Args[1:] {
		cmd.Args[i+1] = w.argument(cmd.Args[i+1], depth)
	}

	if access := w.access(cmd.Args[0], depth); access != nil {
		cmd.Args = append(access, cmd.Args[1:]...)
	}
}

// argument is a node in a place where a value is needed.
func (w *rewriter) argument(node parse.Node, depth int) parse.Node {
	access := w.access(node, depth)
	if access == nil {
		return node
	}

	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: node.Position(), Cmds: []*parse.CommandNode{command(node.Position(), access...)}}
}

// access makes the words of a call out of a node that accesses a field, and
// nil of any other; those that hold nodes of their own are rewritten inside.
func (w *rewriter) access(node parse.Node, depth int) []parse.Node {
	var (
		receiver parse.Node
		path     []string
		pos      = node.Position()
	)

	switch node := node.(type) {
	case *parse.IdentifierNode:
		if _, ok := w.compiled.known[node.Ident]; !ok {
			w.fail(w.lineOf(node), "%s", unavailable(node.Ident))
		}

		w.compiled.functions[node.Ident] = true
	case *parse.PipeNode:
		w.pipe(node, depth+1)
	case *parse.FieldNode:
		receiver, path = &parse.DotNode{NodeType: parse.NodeDot, Pos: pos}, node.Ident
	case *parse.VariableNode:
		receiver = &parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: node.Ident[:1]}
		path = node.Ident[1:]
	case *parse.ChainNode:
		receiver, path = w.argument(node.Node, depth+1), node.Field
	}

	if len(path) == 0 {
		return nil
	}

	// A name holds no dot.
	text := &parse.StringNode{NodeType: parse.NodeString, Pos: pos, Text: strings.Join(path, ".")}
	text.Quoted = `"` + text.Text + `"`

	return []parse.Node{identifier(callField, pos), receiver, text}
}

func identifier(name string, pos parse.Pos) parse.Node {
	return parse.NewIdentifier(name).SetPos(pos)
}

func command(pos parse.Pos, words ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: words}
}

func action(name string, pos parse.Pos) parse.Node {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command(pos, identifier(name, pos))},
	}}
}
