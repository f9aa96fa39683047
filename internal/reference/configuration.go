// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"strings"

	"imbang/internal/daemon/config"
)

// configurationApart are sections that have a page of their own, for its length.
var configurationApart = map[string]bool{"synchronization": true, "vrrp": true}

// configurationPages are the page of all keys, and those of sections apart.
func configurationPages() (pages []Page) {
	text := title("Keys of imbang.yaml", "the parser of configurations") + "The configuration of [`imbang run`](imbang/run.md) is a YAML file, by default " +
		code(config.DefaultFile) + ". [`imbang check`](imbang/check.md) names mistakes with file, line and remedy: all wrong values, but of unknown keys, wrong types and YAML errors only the first; " +
		"`imbang check --schema` prints a JSON Schema for editors. Times have a unit: `500 ms`, `5 s`, `15 min`, `1 h`. " +
		"`[]` stands behind a key that has a list of mappings, `NAME` for a name that the user gives.\n"
	var rows [][]string
	into, apart := &text, ""
	flush := func() {
		if rows != nil {
			*into += "\n" + table([]string{"key", "value", "meaning and default"}, rows)
			rows = nil
		}
		if apart != "" {
			pages = append(pages, Page{"configuration-" + apart + ".md", *into})
		}
		into, apart = &text, ""
	}
	for _, k := range config.Keys() {
		if !strings.Contains(k.Path, ".") {
			flush()
			text += "\n## " + k.Path + "\n"
			if configurationApart[k.Path] {
				apart = k.Path
				text += fmt.Sprintf("\n[Keys of %s](configuration-%s.md)\n", code(apart), apart)
				page := title("Keys of imbang.yaml: "+apart, "the parser of configurations") + "A section of [imbang.yaml](configuration.md).\n"
				into = &page
			}
		}
		kind, _, _ := strings.Cut(k.Kind, ":")
		kind, _, _ = strings.Cut(kind, " such as")
		kind = strings.TrimPrefix(kind, "a ")
		if words := config.Values(k); words != nil {
			kind = code(strings.Join(words, "`, `"))
		}
		rows = append(rows, []string{code(k.Path), kind, config.About(k)})
	}
	flush()
	return append(pages, Page{"configuration.md", text})
}
