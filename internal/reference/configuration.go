// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"cmp"
	"fmt"
	"strings"

	"imbang/internal/daemon/config"
)

// configurationApart are sections that have a page of their own, or one with others, for its
// length.
var configurationApart = map[string]string{
	"synchronization": "synchronization", "vrrp": "vrrp", "listeners": layer7Page, "backends": layer7Page, "proxy": layer7Page,
}

const layer7Page = "layer7"

// configurationNotes begin pages of sections.
var configurationNotes = map[string]string{
	layer7Page: "HTTP and HTTPS by HAProxy, which `imbang proxy` runs: sections of [imbang.yaml](configuration.md). " +
		"[HTTPS in front of three servers](../how-to/https.md) begins with an example.\n\n" +
		"Sizes have a unit: `512 B`, `64 KiB`, `10 MiB`, `1 GiB`. Values of headers and the lines of `raw` are not shown in messages, as they may be secret.\n",
}

// configurationPages are the page of all keys, and those of sections apart.
func configurationPages() (pages []Page) {
	text := title("Keys of imbang.yaml", "the parser of configurations") + "The configuration of [`imbang run`](imbang/run.md) is a YAML file, by default " +
		code(config.DefaultFile) + ". [`imbang check`](imbang/check.md) names mistakes with file, line and remedy: all wrong values, but of unknown keys, wrong types and YAML errors only the first; " +
		"`imbang check --schema` prints a JSON Schema for editors. Times have a unit: `500 ms`, `5 s`, `15 min`, `1 h`, `180 d`. " +
		"`[]` stands behind a key that has a list of mappings, `NAME` for a name that the user gives.\n"
	var rows [][]string
	into, apart := &text, map[string]*string{}
	var others [][]string
	flush := func() {
		if rows != nil {
			*into += "\n" + table([]string{"key", "value", "meaning and default"}, rows)
			rows = nil
		}
		into = &text
	}
	for _, k := range config.Keys() {
		if !strings.Contains(k.Path, ".") {
			flush()
			if name := configurationApart[k.Path]; name == "" {
				text += "\n## " + k.Path + "\n"
			} else {
				others = append(others, []string{fmt.Sprintf("[%s](configuration-%s.md)", code(k.Path), name), config.About(k)})
				if apart[name] == nil {
					page := title("Keys of imbang.yaml: "+name, "the parser of configurations") +
						cmp.Or(configurationNotes[name], "A section of [imbang.yaml](configuration.md).\n")
					apart[name] = &page
				}
				into = apart[name]
				if name != k.Path {
					*into += "\n## " + k.Path + "\n"
				}
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
	text += "\n## Sections with pages of their own\n\n" + table([]string{"section", "contents"}, others)
	for name, page := range apart {
		pages = append(pages, Page{"configuration-" + name + ".md", *page})
	}
	return append(pages, Page{"configuration.md", text})
}
