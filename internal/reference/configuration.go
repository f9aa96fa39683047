// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"strings"

	"imbang/internal/daemon/config"
)

func configurationPage() Page {
	text := title("Keys of imbang.yaml", "the parser of configurations") + "The configuration of [`imbang run`](imbang/run.md) is a YAML file, by default " +
		code(config.DefaultFile) + ". [`imbang check`](imbang/check.md) names mistakes with file, line and remedy: all wrong values, but of unknown keys, wrong types and YAML errors only the first; " +
		"`imbang check --schema` prints a JSON Schema for editors. Times have a unit: `500 ms`, `5 s`, `15 min`, `1 h`. " +
		"`[]` stands behind a key that has a list of mappings, `NAME` for a name that the user gives.\n"
	var rows [][]string
	flush := func() {
		if rows != nil {
			text += "\n" + table([]string{"key", "value", "meaning and default"}, rows)
			rows = nil
		}
	}
	for _, k := range config.Keys() {
		if !strings.Contains(k.Path, ".") {
			flush()
			text += "\n## " + k.Path + "\n"
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
	return Page{"configuration.md", text}
}
