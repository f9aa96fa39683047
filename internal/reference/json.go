// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/cli"
	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/lab/bench"
	labcli "imbang/internal/lab/cli"
	"imbang/internal/lab/failover"
	"imbang/internal/lab/report"
	"imbang/internal/lab/simulate"
	"imbang/internal/lab/stats"
)

// sharedObjects are described once, on the page of JSON output, since several
// commands print them.
var sharedObjects = []struct {
	name  string
	about string
	of    reflect.Type
}{
	{"Summary", "Repeated measurements of one figure, in its unit.", reflect.TypeFor[stats.Summary]()},
	{"Interval", "A confidence interval.", reflect.TypeFor[stats.Interval]()},
	{"Estimate", "A figure of a simulation, over all repeats.", reflect.TypeFor[simulate.Estimate]()},
	{"Target", "A figure of a benchmark and its limits.", reflect.TypeFor[bench.Target]()},
	{"Machine", "The machine of a benchmark.", reflect.TypeFor[bench.Machine]()},
	{"Verdict", "The comparison of all competitors by one metric.", reflect.TypeFor[stats.Verdict]()},
}

// documentOf names the command whose page describes an object that others print, too.
var documentOf = map[reflect.Type]string{
	reflect.TypeFor[director.Event]():      "imbang trace",
	reflect.TypeFor[report.Report]():       "imbang-lab report",
	reflect.TypeFor[failover.Report]():     "imbang-lab run failover",
	reflect.TypeFor[bench.RestoreResult](): "imbang-lab bench restore",
	reflect.TypeFor[api.Pair]():            "imbang peer status",
}

// objectsApart are objects of a command's JSON output that have a page of their own, for its
// length: its name behind that of the command's page.
var objectsApart = []objectApart{
	{reflect.TypeFor[api.Replication](), "imbang status", "replication"},
	{reflect.TypeFor[api.Synchronization](), "imbang status", "synchronization"},
	{reflect.TypeFor[api.Proxy](), "imbang status", "proxy"},
}

type objectApart struct {
	of            reflect.Type
	command, name string
}

// place is the page of an object, from docs/reference.
func (o objectApart) place() string {
	return strings.TrimSuffix(jsonPlace(o.command), "-json.md") + "-" + o.name + "-json.md"
}

// jsonField is a key of a JSON object.
type jsonField struct {
	path string // such as servers[].weight
	kind string // such as "list of objects"
	link string // of an object that is described elsewhere, from docs/reference
	name string // Go's, by which the description is found: director.Status.services
}

// jsonFields lists the keys of a value of type t and of the objects within.
func jsonFields(t reflect.Type) (all []jsonField) {
	_, _, t = jsonKind(t)
	if t == nil {
		return nil
	}
	for _, k := range jsonKeys(t) {
		kind, suffix, object := jsonKind(k.of)
		if strings.Contains(k.options, "omit") {
			kind += ", optional"
		}
		field := jsonField{k.key, kind, objectLink(object), typeName(k.owner) + "." + k.key}
		all = append(all, field)
		if object == nil || field.link != "" {
			continue
		}
		for _, inner := range jsonFields(object) {
			inner.path = k.key + suffix + "." + inner.path
			all = append(all, inner)
		}
	}
	return all
}

// jsonKey is a key of the object that encoding/json makes of a struct.
type jsonKey struct {
	key, options string
	of           reflect.Type
	owner        reflect.Type // the struct that declares it
	depth        int          // of embedded structs
}

// jsonKeys lists the keys of a struct in the order of its fields. Those of embedded
// structs are among them; of two equal keys the one that is embedded less deeply counts.
func jsonKeys(t reflect.Type) (all []jsonKey) {
	add := func(k jsonKey) {
		for i, other := range all {
			if other.key == k.key {
				if k.depth < other.depth {
					all[i] = k
				}
				return
			}
		}
		all = append(all, k)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && key == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for _, k := range jsonKeys(inner) {
				k.depth++
				add(k)
			}
			continue
		}
		if key == "-" || !f.IsExported() {
			continue
		}
		if key == "" {
			key = f.Name
		}
		add(jsonKey{key, options, f.Type, t, 0})
	}
	return all
}

func typeName(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

var (
	marshalsJSON = reflect.TypeFor[json.Marshaler]()
	marshalsText = reflect.TypeFor[encoding.TextMarshaler]()
)

// jsonKind is what encoding/json makes of a type: in words, as the suffix of a path to
// what is within, and the struct of objects, if it is one.
func jsonKind(t reflect.Type) (kind, suffix string, object reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return "time", "", nil
	case reflect.TypeFor[json.RawMessage]():
		return "any value", "", nil
	case reflect.TypeFor[netip.AddrPort]():
		return "address and port", "", nil
	case reflect.TypeFor[netip.Addr]():
		return "address", "", nil
	case reflect.TypeFor[netip.Prefix]():
		return "prefix", "", nil
	}
	switch {
	case t.Implements(marshalsJSON) && t.ConvertibleTo(reflect.TypeFor[time.Duration]()):
		return "number", "", nil // of seconds
	case t.Implements(marshalsJSON):
		return "unknown", "", nil // a test fails
	case t.Implements(marshalsText):
		return "string", "", nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean", "", nil
	case reflect.String:
		return "string", "", nil
	case reflect.Float32, reflect.Float64:
		return "number", "", nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer", "", nil
	case reflect.Slice, reflect.Array:
		kind, suffix, object = jsonKind(t.Elem())
		return "list of " + plural(kind), "[]" + suffix, object
	case reflect.Map:
		kind, suffix, object = jsonKind(t.Elem())
		return "object with " + plural(kind), "{}" + suffix, object
	case reflect.Struct:
		return "object", "", t
	}
	return "unknown", "", nil
}

// plural is that of a kind.
func plural(kind string) string {
	first, rest, _ := strings.Cut(kind, " ")
	switch {
	case rest == "":
	case first == "address":
		return "addresses and ports"
	case first == "any":
		return "any values"
	default:
		rest = " " + rest
	}
	if strings.HasSuffix(first, "s") || strings.HasSuffix(first, "x") {
		return first + "es" + rest
	}
	return first + "s" + rest
}

// objectLink is where an object is described, from docs/reference; "" if in place.
func objectLink(t reflect.Type) string {
	for _, o := range sharedObjects {
		if o.of == t {
			return "json.md#" + strings.ToLower(o.name)
		}
	}
	if c := documentOf[t]; c != "" {
		return jsonPlace(c)
	}
	for _, o := range objectsApart {
		if o.of == t {
			return o.place()
		}
	}
	return ""
}

// commandFile is the page of a command, from docs/reference.
func commandFile(name string) string {
	program, verb, _ := strings.Cut(name, " ")
	return program + "/" + strings.ReplaceAll(verb, " ", "-") + ".md"
}

// jsonApart are commands whose JSON output has a page of its own, for its length.
var jsonApart = map[string]bool{"imbang conns": true, "imbang status": true}

// jsonPlace is where a command's JSON output is described, from docs/reference.
func jsonPlace(name string) string {
	file := commandFile(name)
	if jsonApart[name] {
		return strings.TrimSuffix(file, ".md") + "-json.md"
	}
	return file + "#json-output"
}

// jsonTable is the table of an object's keys. Links are made from a directory that is
// up from docs/reference.
func jsonTable(t reflect.Type, up string) string {
	var rows [][]string
	for _, f := range jsonFields(t) {
		kind := f.kind
		if f.link != "" {
			kind = fmt.Sprintf("[%s](%s%s)", f.kind, up, f.link)
		}
		rows = append(rows, []string{code(f.path), kind, strings.ReplaceAll(fieldTexts[f.name], "](../", "]("+up)})
	}
	return table([]string{"key", "type", "meaning"}, rows)
}

// form is what a document is, in words.
func form(d command.Document) string {
	switch {
	case d.Lines:
		return "one object per line"
	case d.Type.Kind() == reflect.Slice:
		return "a list of objects"
	}
	return "one object"
}

// jsonSection is the part of a command's page about its JSON output.
func jsonSection(c *cobra.Command) string {
	switch {
	case len(command.Documents(c)) == 0:
		return ""
	case jsonApart[c.CommandPath()]:
		return fmt.Sprintf("## JSON output\n\n[JSON output of %s](../%s)\n", c.CommandPath(), jsonPlace(c.CommandPath()))
	}
	return "## JSON output\n\n" + jsonForms(c)
}

// jsonForms describes all that a command prints with -o json.
func jsonForms(c *cobra.Command) string {
	documents := command.Documents(c)
	text := "`-o json` prints %s. [JSON output](../json.md) has the conventions.\n"
	if len(documents) == 1 {
		text = fmt.Sprintf(text, form(documents[0]))
	} else {
		text = fmt.Sprintf(text, "one of these forms")
	}
	for _, d := range documents {
		if len(documents) > 1 {
			text += "\n" + strings.ToUpper(d.When[:1]) + d.When[1:] + ": " + form(d) + ".\n"
		}
		if other := documentOf[d.Type]; other != "" && other != c.CommandPath() {
			text += fmt.Sprintf("\nThe keys are those of [%s](../%s).\n", code(other), jsonPlace(other))
			continue
		}
		text += "\n" + jsonTable(d.Type, "../")
	}
	return text + "\n"
}

// jsonPage has the conventions, the commands and the objects that they share.
func jsonPage() Page {
	text := title("JSON output", "the types that the commands print") + jsonConventions + "## Commands\n\n"
	var rows [][]string
	for _, root := range []*cobra.Command{cli.Command(), labcli.Command()} {
		for _, c := range visible(root) {
			for _, d := range command.Documents(c) {
				rows = append(rows, []string{fmt.Sprintf("[%s](%s)", code(c.CommandPath()), jsonPlace(c.CommandPath())), d.When, form(d)})
			}
			for _, o := range objectsApart {
				if o.command == c.CommandPath() {
					rows = append(rows, []string{fmt.Sprintf("[%s](%s)", code(o.command), o.place()), "object " + code(o.name) + " of this", "one object"})
				}
			}
		}
	}
	text += table([]string{"command", "when", "form"}, rows) + "\n## Shared objects\n"
	for _, o := range sharedObjects {
		text += "\n### " + o.name + "\n\n" + o.about + "\n\n" + jsonTable(o.of, "")
	}
	text += "\n## Metrics of a report\n\nKeys of `values`, `best`, `comparisons` and `metric` of [`imbang-lab report`](imbang-lab/report.md#json-output).\n\n"
	var metrics [][]string
	for _, m := range report.Metrics() {
		meaning := m.Title
		if m.Meaning != "" {
			meaning += ": " + m.Meaning
		}
		metrics = append(metrics, []string{code(m.Key), m.Unit, meaning})
	}
	return Page{"json.md", text + table([]string{"key", "unit", "meaning"}, metrics)}
}

const jsonConventions = `Commands with the flag ` + "`-o json` (`--output json`)" + ` print one JSON value, or one object per line ([JSON
Lines](https://jsonlines.org/)). Messages and progress go to standard error. The exit status does not depend on the format. New versions may add
keys.

| type | form |
| --- | --- |
| time | string, RFC 3339 |
| address, prefix | string, ` + "`10.20.0.1`, `fd00:20::1`, `10.20.0.0/24`" + ` |
| address and port | string, ` + "`10.20.0.1:80`, `[fd00:20::1]:80`" + ` |
| optional | the key is absent if it does not apply or has no value |
| list | an empty list is ` + "`[]` or `null`" + ` |
| ` + "`a[].b`" + ` | key ` + "`b`" + ` of each object in the list ` + "`a`" + ` |
| ` + "`a{}.b`" + ` | key ` + "`b`" + ` of each object in the object ` + "`a`" + `, whose keys are names |

`
