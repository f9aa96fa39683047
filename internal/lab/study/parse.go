// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is the file as it stands, before units and sense are checked.
type document struct {
	Name        string          `yaml:"name"`
	Title       string          `yaml:"title"`
	Source      string          `yaml:"source"`
	Hypothesis  string          `yaml:"hypothesis"`
	Cluster     clusterDoc      `yaml:"cluster"`
	Load        loadDoc         `yaml:"load"`
	Competitors []competitorDoc `yaml:"competitors"`
	Repeats     repeatsDoc      `yaml:"repeats"`
	Quick       quickDoc        `yaml:"quick"`
	Published   *publishedDoc   `yaml:"published"`
}

// Parse reads a study. file is the name that errors carry; engines are those
// that competitors may have, nil for any.
func Parse(file string, text []byte, engines []Engine) (*Study, error) {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, located(file, nil, err)
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s:1:1: the file is empty: write a study that begins with \"name: NAME\"", file)
	}
	if len(tree.Docs) > 1 {
		return nil, fmt.Errorf("%s:%d:1: a second document: keep one study a file", file, tree.Docs[1].GetToken().Position.Line)
	}
	body := tree.Docs[0].Body
	if tk := unusual(body); tk != nil {
		return nil, fmt.Errorf("%s:%d:%d: %q: write the value itself: tags, anchors and aliases are not read in a study",
			file, tk.Position.Line, tk.Position.Column, tk.Value)
	}
	var d document
	if err := yaml.NodeToValue(body, &d, yaml.Strict()); err != nil {
		return nil, located(file, body, err)
	}
	c := &checker{file: file, body: body, engines: engines}
	s := c.study(&d)
	if c.err != nil {
		return nil, c.err
	}
	s.Text = string(text)
	return s, nil
}

// unusual finds YAML that a study has no use for; the library's decoder even
// panics over some tags.
func unusual(body ast.Node) *token.Token {
	for _, kind := range []ast.NodeType{ast.TagType, ast.AnchorType, ast.AliasType, ast.MergeKeyType} {
		if found := ast.Filter(kind, body); len(found) > 0 {
			return found[0].GetToken()
		}
	}
	return nil
}

// located turns an error of the YAML library into one line that names the
// place and the remedy.
func located(file string, body ast.Node, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf("%s: %s", file, firstLine(err.Error()))
	}
	tk := ye.GetToken()
	at := fmt.Sprintf("%s:%d:%d", file, tk.Position.Line, tk.Position.Column)
	var (
		unknown *yaml.UnknownFieldError
		wrong   *yaml.TypeError
		node    *yaml.UnexpectedNodeTypeError
		twice   *yaml.DuplicateKeyError
	)
	path := pathOf(body, tk)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: unknown key %q: known here are %s", at, tk.Value, strings.Join(keysAt(parentPath(path)), ", "))
	case errors.As(err, &twice):
		return fmt.Errorf("%s: key %q is given twice: remove one", at, tk.Value)
	case errors.As(err, &wrong), errors.As(err, &node):
		return fmt.Errorf("%s: %s: %q is of the wrong kind: want %s", at, cmp.Or(path, "the study"), tk.Value, kindAt(path))
	}
	return fmt.Errorf("%s: %s: correct the YAML here", at, firstLine(ye.GetMessage()))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
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

func parentPath(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

var indices = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[\d+\]`) })

// typeAt is the Go type that a path of the document is decoded into, nil for
// an unknown path.
func typeAt(path string) reflect.Type {
	t := reflect.TypeFor[document]()
	for _, key := range strings.Split(path, ".") {
		if key == "" {
			continue
		}
		if t = deref(t); t.Kind() == reflect.Map {
			t = t.Elem()
		} else if t.Kind() == reflect.Struct {
			f, ok := fieldOf(t, indices().ReplaceAllString(key, ""))
			if !ok {
				return nil
			}
			t = f
		}
		if deref(t).Kind() == reflect.Slice && indices().MatchString(key) {
			t = t.Elem()
		}
	}
	return deref(t)
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func fieldOf(t reflect.Type, key string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("yaml") == key {
			return f.Type, true
		}
	}
	return nil, false
}

// keysAt lists the keys of the mapping at a path, in the order to write them.
func keysAt(path string) []string {
	var keys []string
	if t := typeAt(path); t != nil && t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			keys = append(keys, t.Field(i).Tag.Get("yaml"))
		}
	}
	return keys
}

// Key is a key of a study: its path, with [] behind a key that has a list of
// mappings, and what kind of value it has.
type Key struct{ Path, Kind string }

// Keys lists all keys, in the order to write them.
func Keys() []Key { return keysBelow("", reflect.TypeFor[document]()) }

func keysBelow(prefix string, t reflect.Type) (keys []Key) {
	for i := range t.NumField() {
		f := t.Field(i)
		path, of := prefix+f.Tag.Get("yaml"), deref(f.Type)
		keys = append(keys, Key{path, kindName(of)})
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		if of.Kind() == reflect.Struct {
			keys = append(keys, keysBelow(path+".", of)...)
		}
	}
	return keys
}

// kindAt says in words what a path wants.
func kindAt(path string) string {
	t := typeAt(path)
	if t == nil {
		return "another kind of value"
	}
	return kindName(t)
}

func kindName(t reflect.Type) string {
	switch deref(t).Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list such as [a, b]"
	case reflect.Struct, reflect.Map:
		return "a mapping: keys with values, indented"
	}
	return "a text"
}
