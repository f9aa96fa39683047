// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Mistake is what is wrong at a place of a file.
type Mistake struct {
	File         string
	Line, Column int
	Path, Text   string // the dotted path of the value, and what to do
}

// Error is one line: file, line, column, path and text.
func (m *Mistake) Error() string {
	if m.Path == "" {
		return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", m.File, m.Line, m.Column, m.Path, m.Text)
}

// File is the name that errors carry.
func (t *Tree) File() string { return t.file }

// Mistake locates a mistake at a path such as load.rates[1]. A path that is not in
// the file, a missing key, is located at its nearest parent. What the text quotes, in
// double quotes, is cut, or left out below secret keys.
func (t *Tree) Mistake(path, format string, args ...any) *Mistake {
	m := &Mistake{File: t.file, Line: 1, Column: 1, Path: path, Text: quotes(fmt.Sprintf(format, args...), t.kind.secret(path))}
	for p := path; ; p = Parent(p) {
		if n := t.Node(p); n != nil {
			at := n.GetToken().Position
			m.Line, m.Column = at.Line, at.Column
			return m
		}
		if p == "" {
			return m
		}
	}
}

// Node is the value at a path of the file, nil if there is none.
func (t *Tree) Node(path string) ast.Node {
	p, err := yaml.PathString(strings.TrimSuffix("$."+path, "."))
	if err != nil {
		return nil
	}
	n, err := p.FilterNode(t.body)
	if err != nil {
		return nil
	}
	return n
}

// Has reports whether the file has a value at a path.
func (t *Tree) Has(path string) bool { return t.Node(path) != nil }

// Keys are the keys of a mapping in the order of the file.
func (t *Tree) Keys(path string) (keys []string) {
	m, ok := t.Node(path).(ast.MapNode)
	if !ok {
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		keys = append(keys, it.Key().GetToken().Value)
	}
	return keys
}

// pathOf is the dotted path of the node that a token belongs to.
func pathOf(body ast.Node, tk *token.Token) string {
	f := &finder{token: tk}
	if body != nil {
		ast.Walk(f, body)
	}
	return f.path
}

type finder struct {
	token *token.Token
	path  string
}

// Visit keeps the outermost node at the token's place: of a mapping and its
// first key, the parser gives both the same token.
func (f *finder) Visit(n ast.Node) ast.Visitor {
	if t := n.GetToken(); f.path == "" && t != nil && t.Position.Offset == f.token.Position.Offset {
		f.path = strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), ".")
	}
	return f
}

// Parent is the path of what contains a path, "" above the first level.
func Parent(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}
