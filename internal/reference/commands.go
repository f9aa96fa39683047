// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"imbang/internal/cli"
	labcli "imbang/internal/lab/cli"
)

// commandPages are a page for each program with the list of its commands, and one
// for each command.
func commandPages() (pages []Page) {
	for _, root := range []*cobra.Command{cli.Command(), labcli.Command()} {
		root.InitDefaultHelpFlag()
		var rows [][]string
		for _, c := range visible(root) {
			name := strings.TrimPrefix(c.CommandPath(), root.Name()+" ")
			file := strings.ReplaceAll(name, " ", "-") + ".md"
			if page, is := otherPages[c.CommandPath()]; is {
				rows = append(rows, []string{fmt.Sprintf("[%s](%s)", code(c.CommandPath()), page), c.Short})
				continue
			}
			rows = append(rows, []string{fmt.Sprintf("[%s](%s/%s)", code(c.CommandPath()), root.Name(), file), c.Short})
			pages = append(pages, Page{root.Name() + "/" + file, commandPage(c)})
			if jsonApart[c.CommandPath()] {
				pages = append(pages, Page{jsonPlace(c.CommandPath()), title("JSON output of "+c.CommandPath(), "the types that it prints") + jsonForms(c)})
			}
			for _, o := range objectsApart {
				if o.command == c.CommandPath() {
					pages = append(pages, Page{o.place(), title("JSON output of "+o.command+": "+o.name, "the types that it prints") +
						fmt.Sprintf("An object of the [JSON output of %s](../%s).\n\n", o.command, jsonPlace(o.command)) + jsonTable(o.of, "../")})
				}
			}
		}
		text := title(root.Name(), "the program's commands") + root.Short + ".\n\n" +
			table([]string{"command", "purpose"}, rows) + "\n" + exits + section("Description", fence("text", root.Long))
		pages = append(pages, Page{root.Name() + ".md", text})
	}
	return pages
}

// otherPages describe commands that have no flags of their own: ipvsadm parses its
// arguments itself, and the others execute imbang-lab.
var otherPages = map[string]string{
	"imbang ipvsadm": "ipvsadm.md",
	"imbang lab":     "imbang-lab.md",
	"imbang bench":   "imbang-lab/bench.md",
	"imbang conform": "imbang-lab/conform.md",
}

const exits = `Exit statuses: 0 success; 1 the command worked, and its result is not the expected one; 2 wrong command line; 3 the command
failed. [Exit statuses and environment variables](environment.md) has the details, [JSON output](json.md) the keys of ` + "`-o json`" + `.

`

// visible are the commands below one that its help shows, each before its own.
func visible(of *cobra.Command) (all []*cobra.Command) {
	for _, c := range of.Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			all = append(append(all, c), visible(c)...)
		}
	}
	return all
}

func commandPage(c *cobra.Command) string {
	text := title(c.CommandPath(), "the command's help") + c.Short + ".\n\n" + fence("sh", c.UseLine())
	if c.Example != "" {
		text += section("Examples", fence("sh", unindent(c.Example)))
	}
	c.InitDefaultHelpFlag()
	if rows := flagRows(c.LocalFlags()); len(rows) > 0 {
		text += section("Flags", table([]string{"flag", "default", "meaning"}, rows)+"\n")
	}
	if rows := flagRows(c.InheritedFlags()); len(rows) > 0 {
		text += section("Flags of all commands", table([]string{"flag", "default", "meaning"}, rows)+"\n")
	}
	if c.Long != "" {
		text += section("Description", fence("text", c.Long))
	}
	text += jsonSection(c)
	return strings.TrimRight(text, "\n") + "\n"
}

func section(name, text string) string { return "## " + name + "\n\n" + text }

func fence(language, text string) string {
	return "```" + language + "\n" + strings.Trim(text, "\n") + "\n```\n\n"
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func flagRows(flags *pflag.FlagSet) (rows [][]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, meaning := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		standard := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			standard = code(f.DefValue)
		}
		rows = append(rows, []string{code(name), standard, meaning})
	})
	return rows
}
