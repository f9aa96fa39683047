// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/bench"
	"imbang/internal/lab/stats"
)

// object is a JSON object in its order.
type object []member

type member struct {
	key   string
	value any // object, []any, stats.Summary, string, json.Number, bool or nil
}

// parse reads JSON with the order of its members.
func parse(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return value(d)
}

func value(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, isDelim := token.(json.Delim)
	if !isDelim {
		return token, nil
	}
	var o object
	var list []any
	for d.More() {
		var key json.Token
		if open == '{' {
			if key, err = d.Token(); err != nil {
				return nil, err
			}
		}
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		if open == '{' {
			o = append(o, member{key.(string), v})
		} else {
			list = append(list, v)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if open == '[' {
		return list, nil
	}
	return o.summary(), nil
}

// summary is the object as a figure, if it is one.
func (o object) summary() any {
	var s stats.Summary
	into := map[string]*float64{"median": &s.Median, "min": &s.Min, "max": &s.Max}
	for _, m := range o {
		n, ok := m.value.(json.Number)
		if !ok {
			return o
		}
		v, err := n.Float64()
		if err != nil {
			return o
		}
		if m.key == "n" {
			s.N = int(v)
		} else if at, ok := into[m.key]; ok {
			*at = v
		} else {
			return o
		}
	}
	if len(o) != 4 {
		return o
	}
	return s
}

// flat is the object with the members of inner ones in it.
func (o object) flat(prefix string) (list object) {
	for _, m := range o {
		if m.key == "by_round" || m.key == "over_interval" { // the figure beside it sums it up
			continue
		}
		if inner, ok := m.value.(object); ok {
			list = append(list, inner.flat(prefix+m.key+" ")...)
			continue
		}
		list = append(list, member{prefix + m.key, m.value})
	}
	return list
}

// words makes a heading of a name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// cell is a value as a table shows it.
func cell(v any) string {
	switch v := v.(type) {
	case stats.Summary:
		return bench.Figure(v)
	case nil:
		return ""
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return bench.Figure(stats.Summary{N: 1, Median: f})
		}
		return v.String()
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, cell(one))
		}
		return strings.Join(parts, ", ")
	}
	return strings.ReplaceAll(fmt.Sprint(v), "|", "\\|")
}

// rows is a list of objects as a table; false if it is something else.
func rows(list []any) (head []string, body [][]string, ok bool) {
	for _, one := range list {
		o, is := one.(object)
		if !is {
			return nil, nil, false
		}
		for _, m := range o.flat("") {
			if !slices.Contains(head, m.key) {
				head = append(head, m.key)
			}
		}
	}
	for _, one := range list {
		row := make([]string, len(head))
		for _, m := range one.(object).flat("") {
			row[slices.Index(head, m.key)] = cell(m.value)
		}
		body = append(body, row)
	}
	return head, body, len(head) > 0
}

// table writes one in Markdown.
func table(w *strings.Builder, head []string, body [][]string) {
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, row := range body {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}
