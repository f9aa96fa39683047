// SPDX-License-Identifier: Apache-2.0

// Package strictyaml reads YAML files that people write: an unknown key, a key that
// is given twice and a value of the wrong kind are refused, in one line that names
// file, line, column and remedy. It knows no file's keys: the Go type does that a
// file is decoded into, by tags `yaml:"key"`.
package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Kind is the words that errors have for a kind of file.
type Kind struct {
	Name  string // with its article: "a study"
	Begin string // how such a file begins: `a study that begins with "name: NAME"`
	// Secret are keys below which errors quote nothing.
	Secret []string
	// Public are ends of paths that are quoted all the same.
	Public []string
}

// Tree is a file as it stands, by which mistakes found later get their places.
type Tree struct {
	file string
	body ast.Node
	kind Kind
}

// Decode reads a file into a pointer to a struct. file is the name that errors
// carry.
func Decode(file string, text []byte, kind Kind, into any) (*Tree, error) {
	root := reflect.TypeOf(into).Elem()
	if m := crowded(file, text); m != nil {
		return nil, m
	}
	tokens := uncommented(lexer.Tokenize(string(text)))
	if tk, text := unbounded(tokens); tk != nil {
		return nil, mistakeAt(file, tk, "", "%s", text)
	}
	tree, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, located(file, nil, kind, root, err)
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, &Mistake{File: file, Line: 1, Column: 1, Text: "the file is empty: write " + kind.Begin}
	}
	if len(tree.Docs) > 1 {
		return nil, &Mistake{File: file, Line: tree.Docs[1].GetToken().Position.Line, Column: 1, Text: fmt.Sprintf("a second document: keep one %s a file", bare(kind.Name))}
	}
	body := tree.Docs[0].Body
	if tk := unusual(body); tk != nil {
		return nil, mistakeAt(file, tk, "", "%q: write the value itself: tags, anchors and aliases are not read in %s", tk.Value, kind.Name)
	}
	if err := yaml.NodeToValue(body, into, yaml.Strict()); err != nil {
		return nil, located(file, body, kind, root, err)
	}
	return &Tree{file, body, kind}, nil
}

// uncommented are the tokens but comments, as the parser has them.
func uncommented(tokens token.Tokens) token.Tokens {
	return slices.DeleteFunc(tokens, func(t *token.Token) bool { return t.Type == token.CommentType })
}

func bare(name string) string {
	_, noun, _ := strings.Cut(name, " ")
	return noun
}

// unusual finds YAML that such files have no use for; the library's decoder even
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
func located(file string, body ast.Node, kind Kind, root reflect.Type, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf("%s: %s", file, quotes(firstLine(err.Error()), false))
	}
	tk := ye.GetToken()
	var (
		unknown *yaml.UnknownFieldError
		wrong   *yaml.TypeError
		node    *yaml.UnexpectedNodeTypeError
		twice   *yaml.DuplicateKeyError
	)
	path := pathOf(body, tk)
	switch {
	case errors.As(err, &unknown):
		return mistakeAt(file, tk, "", "unknown key%s: known here are %s", quotedKey(tk.Value), strings.Join(keysAt(root, Parent(path)), ", "))
	case errors.As(err, &twice):
		return mistakeAt(file, tk, "", "key%s is given twice: remove one", quotedKey(tk.Value))
	case errors.As(err, &wrong), errors.As(err, &node):
		// A file without keys may be of any kind.
		value := quotes(fmt.Sprintf("%q", tk.Value), path == "" || kind.secret(path))
		return mistakeAt(file, tk, cmp.Or(path, "the "+bare(kind.Name)), "%s is of the wrong kind: want %s", value, kindAt(root, path))
	}
	return mistakeAt(file, tk, "", "%s: correct the YAML here", plain(firstLine(ye.GetMessage())))
}

func mistakeAt(file string, tk *token.Token, path, format string, args ...any) *Mistake {
	return &Mistake{File: file, Line: tk.Position.Line, Column: tk.Position.Column, Path: path, Text: quotes(fmt.Sprintf(format, args...), false)}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
