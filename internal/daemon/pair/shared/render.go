// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Render writes a document as YAML, keys in their order. The YAML library's encoder loses
// carriage returns of texts; here a text that is not plain is one of JSON, which YAML has, too.
func (r *Rules) Render(d Document) []byte {
	var out bytes.Buffer
	r.mapping(&out, "", d, 0)
	return out.Bytes()
}

func (r *Rules) mapping(out *bytes.Buffer, path string, m map[string]any, depth int) {
	for i, key := range r.keys(path, m) {
		if i > 0 || depth == 0 {
			indent(out, depth)
		}
		fmt.Fprintf(out, "%s:", scalar(key))
		r.value(out, join(path, key), m[key], depth+1)
	}
}

// value writes what stands behind a key.
func (r *Rules) value(out *bytes.Buffer, path string, value any, depth int) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			out.WriteString(" {}\n")
			return
		}
		out.WriteByte('\n')
		indent(out, depth)
		r.mapping(out, path, value, depth)
	case []any:
		if !slices.ContainsFunc(value, nests) {
			var words []string
			for _, one := range value {
				words = append(words, scalar(one))
			}
			fmt.Fprintf(out, " [%s]\n", strings.Join(words, ", "))
			return
		}
		out.WriteByte('\n')
		for _, one := range value {
			indent(out, depth)
			out.WriteByte('-')
			r.entry(out, path+"[]", one, depth)
		}
	default:
		fmt.Fprintf(out, " %s\n", scalar(value))
	}
}

// entry writes what stands behind the dash of a list. A mapping begins in its line.
func (r *Rules) entry(out *bytes.Buffer, path string, value any, depth int) {
	if m, is := value.(map[string]any); is && len(m) > 0 {
		out.WriteByte(' ')
		r.mapping(out, path, m, depth+1)
		return
	}
	r.value(out, path, value, depth+1)
}

func nests(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func indent(out *bytes.Buffer, depth int) { out.WriteString(strings.Repeat("  ", depth)) }

// plainText are texts that mean themselves without quotes, unless they look like something
// else.
var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./%-]*$|^[0-9]+(\.[0-9]+)? (ms|s|min|h|%)$|^[0-9]+(\.[0-9]+){3}(/[0-9]+)?$`)

var words = []string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}

func scalar(value any) string {
	text, is := value.(string)
	if !is {
		if f, is := value.(float64); is {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return fmt.Sprint(value)
	}
	if plainText.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // of a text
	}
	return strings.TrimSuffix(out.String(), "\n")
}
