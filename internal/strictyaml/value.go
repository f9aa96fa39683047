// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"math"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// Value is the file as it stands: mappings as map[string]any, lists as []any, and string,
// int64, uint64, float64 and bool. A number that has several spellings, such as 007, is the
// text that stands there. Keys without a value are left out, and list entries without one are
// empty texts.
func (t *Tree) Value() map[string]any {
	if m, is := valueOf(t.body).(map[string]any); is {
		return m
	}
	return map[string]any{}
}

func valueOf(n ast.Node) any {
	switch n := n.(type) {
	case ast.MapNode:
		out := map[string]any{}
		for it := n.MapRange(); it.Next(); {
			if _, empty := it.Value().(*ast.NullNode); !empty {
				out[it.Key().GetToken().Value] = valueOf(it.Value())
			}
		}
		return out
	case *ast.SequenceNode:
		out := []any{}
		for _, one := range n.Values {
			out = append(out, valueOf(one))
		}
		return out
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.BoolNode:
		return n.Value
	case *ast.IntegerNode:
		return number(n.GetToken().Value)
	case *ast.FloatNode:
		return number(n.GetToken().Value)
	case *ast.NullNode:
		return ""
	}
	return n.GetToken().Value // infinity, not a number
}

// number is a number whose usual spelling is the text, or the text.
func number(text string) any {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(i, 10) == text {
		return i
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil && strconv.FormatUint(u, 10) == text {
		return u
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == text && f != math.Trunc(f) {
		return f
	}
	return text
}
