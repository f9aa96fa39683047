// SPDX-License-Identifier: Apache-2.0

// Command man writes a manual page of each command into a directory, and scripts for
// shell completion beside them, for packages.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"imbang/internal/cli"
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
