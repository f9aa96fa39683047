// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"imbang/internal/cli"
	labcli "imbang/internal/lab/cli"
)

// parses says why a program does not accept a command line as far as its flags and the number of
// its arguments show, or nil. own reports whether the program parses it by cobra: ipvsadm has a
// parser of its own, and is tested with its recordings.
func parses(words []string) (own bool, err error) {
	if len(words) > 1 && words[0] == "sudo" {
		words = words[1:]
	}
	if words[0] == "imbang" && len(words) > 1 {
		switch words[1] {
		case "ipvsadm":
			return false, nil
		case "lab":
			words = append([]string{"imbang-lab"}, words[2:]...)
		case "bench", "conform":
			words = append([]string{"imbang-lab"}, words[1:]...)
		}
	}
	var root *cobra.Command
	switch words[0] {
	case "imbang":
		root = cli.Command()
	case "imbang-lab":
		root = labcli.Command()
	default:
		return false, nil
	}
	c, args, err := root.Find(words[1:])
	if err != nil {
		return true, err
	}
	if c.DisableFlagParsing {
		return false, nil
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(args); err != nil {
		return true, err
	}
	if help, _ := c.Flags().GetBool("help"); help {
		return true, nil
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return true, err
	}
	return true, c.ValidateRequiredFlags()
}

// nested are the commands of a script and of the words in it that are scripts, such as those of ssh.
func nested(script string) (all [][]string) {
	for _, words := range shellCommands(script) {
		all = append(all, words)
		for _, w := range words[1:] {
			if strings.ContainsAny(w, " \n") && strings.Contains(w, "imbang") {
				all = append(all, nested(w)...)
			}
		}
		if len(words) > 2 && words[0] == "ssh" {
			all = append(all, words[2:])
		}
	}
	return all
}

// Each example in the help of a command is accepted by the command.
func TestExamplesParse(t *testing.T) {
	n := 0
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Example != "" {
			found := false
			for _, words := range nested(c.Example) {
				own, err := parses(words)
				if err != nil {
					t.Errorf("%s: %s: %v", c.CommandPath(), strings.Join(words, " "), err)
				}
				if own {
					n++
				}
				found = found || slices.Contains(words, c.Name())
			}
			if !found {
				t.Errorf("%s: no example is of this command:\n%s", c.CommandPath(), c.Example)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(cli.Command())
	visit(labcli.Command())
	if n < 60 {
		t.Errorf("only %d examples", n)
	}
}

var shellBlock = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")

// Each command in a shell block of the documentation is accepted by its program.
func TestDocumentedCommandsParse(t *testing.T) {
	n := 0
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/reference/") {
			continue // generated: the examples are tested above, and the first block is a synopsis
		}
		for _, block := range shellBlock.FindAllStringSubmatch(read(t, page), -1) {
			for _, words := range nested(block[1]) {
				own, err := parses(words)
				if err != nil {
					t.Errorf("%s: %s: %v", page, strings.Join(words, " "), err)
				}
				if own {
					n++
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands", n)
	}
}

// Command lines that are wrong are found.
func TestWrongCommandLinesAreFound(t *testing.T) {
	for line, want := range map[string]string{
		"imbang sync barrier --timeout 30":                       "missing unit in duration",
		"sudo imbang drain":                                      "accepts",
		"imbang nonsense":                                        "unknown command",
		"imbang conns --nonsense":                                "unknown flag",
		"ssh k 'ip link; imbang migrate take -d eth0' | cat":     "requires at least 1 arg",
		"ssh k imbang migrate take 192.0.2.1 --announcements x":  "invalid argument",
		"imbang bench flood --nonsense 1":                        "unknown flag",
		"imbang events -o json | jq '.x' && imbang lab nonsense": "unknown command",
	} {
		var errs []string
		for _, words := range nested(line) {
			if _, err := parses(words); err != nil {
				errs = append(errs, err.Error())
			}
		}
		if len(errs) != 1 || !strings.Contains(errs[0], want) {
			t.Errorf("%s: %q, want one error with %q", line, errs, want)
		}
	}
}
