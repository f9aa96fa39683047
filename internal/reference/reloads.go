// SPDX-License-Identifier: Apache-2.0

package reference

import "imbang/internal/daemon/l7/haproxy/runtime"

// reloadsPage says what HAProxy is told by a command, and what requires a reload, by version.
func reloadsPage() Page {
	var rows [][]string
	for _, r := range runtime.Rules() {
		command, reload := "none", "all versions"
		if r.Command != "" {
			command, reload = code(r.Command), "never"
		}
		when := r.When
		if r.When != "" {
			reload = r.Versions()
			if reload == "all" {
				reload = "all versions"
			}
			reload += ", if " + when
		}
		rows = append(rows, []string{r.Change, command, reload})
	}
	text := title("What requires a reload of HAProxy", "the rules that imbang goes by") +
		"How `imbang run` carries out a change of [layer 7](configuration-layer7.md): by a command on HAProxy's socket, or by a reload. A test asks the " +
		"HAProxy that is installed whether it refuses what is said to require one.\n\n" +
		table([]string{"change", "commands", "reload"}, rows) +
		"\nWhere a backend's method is static, as with a map-based hash, HAProxy takes neither a server nor a weight at run time. imbang renders no such method: its " +
		"hashes are consistent, and `imbang check` refuses raw lines that choose a method, or that set `default-server`, which HAProxy does not apply to a server added at run time.\n"
	return Page{"haproxy-reloads.md", text}
}
