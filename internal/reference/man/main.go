// SPDX-License-Identifier: Apache-2.0

// Command man writes a manual page of each command into a directory, and scripts for
// shell completion beside them, for packages.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"imbang/internal/cli"
	"imbang/internal/ipvsadm"
	labcli "imbang/internal/lab/cli"
	"imbang/internal/version"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(dir string) error {
	var errs []error
	for _, root := range []*cobra.Command{cli.Command(), labcli.Command()} {
		root.DisableAutoGenTag = true
		prepare(root)
		head := &doc.GenManHeader{Section: "8", Source: "imbang " + version.Version, Manual: "imbang"}
		man := filepath.Join(dir, "man8")
		errs = append(errs, os.MkdirAll(man, 0o755), doc.GenManTree(root, head, man))
		for shell, gen := range map[string]func(string) error{
			"bash": func(f string) error { return root.GenBashCompletionFileV2(f, true) },
			"zsh":  root.GenZshCompletionFile,
			"fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
		} {
			errs = append(errs, os.MkdirAll(filepath.Join(dir, shell), 0o755), gen(filepath.Join(dir, shell, root.Name())))
		}
	}
	return errors.Join(errs...)
}

// prepare makes the descriptions of a command and of those below it what the generator reads,
// Markdown, and gives ipvsadm, which is no command of cobra's, a page.
func prepare(c *cobra.Command) {
	if c.Name() == "ipvsadm" {
		var help strings.Builder
		ipvsadm.Run([]string{"--help"}, nil, &help, &help, nil, nil)
		c.Long += "\n\n  " + strings.ReplaceAll(strings.TrimSpace(help.String()), "\n", "\n  ")
		c.Run = func(*cobra.Command, []string) {}
	}
	c.Long = markdown(c.Long)
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// markdown turns indented lines into blocks, which keep their lines and their indent.
func markdown(text string) string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		switch indented := strings.HasPrefix(line, "  "); {
		case indented && !inside:
			lines[i] = "\n    " + line
		case indented:
			lines[i] = "    " + line
		case inside && line != "":
			lines[i] = "\n" + line
		}
		if line != "" {
			inside = strings.HasPrefix(line, "  ")
		}
	}
	return strings.Join(lines, "\n")
}
