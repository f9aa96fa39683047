// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/config"
)

// checkedFile is what imbang check prints.
type checkedFile struct {
	Valid    bool     `json:"valid"`
	Files    []string `json:"files"`
	Services int      `json:"services"`
	Servers  int      `json:"servers"`
	Mistakes []string `json:"mistakes"`
	Warnings []string `json:"warnings"` // of a valid file
}

func newCheckCommand() *cobra.Command {
	var out command.OutputFlag
	var schema bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file of imbang run",
		Long: `Reads a configuration file (by default ` + config.DefaultFile + `) with the
files that it includes, and prints mistakes with file, line, column, key and
remedy: all wrong values, but of unknown keys, values of a wrong type and errors of
YAML only the first. It needs neither a director nor permissions, and changes nothing.
It warns if the key file of synchronization.replication is missing or unsuitable, as far
as the user can read it: the file may be written later.

The exit status is 0 if the file is valid, 1 if it is not, 2 for a wrong command
line, or 3 if it cannot be read.`,
		Example: `  imbang check
  imbang check imbang.yaml --output json
  imbang check --schema >imbang.schema.json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if schema {
				_, err := c.OutOrStdout().Write(config.Schema())
				return err
			}
			file := config.DefaultFile
			if len(args) == 1 {
				file = args[0]
			}
			r := checkedFile{Files: []string{file}, Mistakes: []string{}, Warnings: []string{}}
			loaded, err := config.Load(file)
			var mistakes config.Mistakes
			switch {
			case errors.As(err, &mistakes):
				for _, m := range mistakes {
					r.Mistakes = append(r.Mistakes, m.Error())
				}
			case err != nil:
				return err
			default:
				r.Valid, r.Files, r.Services = true, loaded.Files, len(loaded.Services)
				for _, s := range loaded.Services {
					r.Servers += len(s.Servers)
				}
				r.Warnings = append(r.Warnings, loaded.Warnings...)
				r.Warnings = append(r.Warnings, keyWarnings(loaded)...)
			}
			if err := out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printChecked(w, r) }); err != nil {
				return err
			}
			if !r.Valid {
				return command.ErrNotAsExpected
			}
			return nil
		},
	}
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of configurations, for editors")
	out.Register(c, command.One[checkedFile](""))
	return c
}

// keyWarnings are what is wrong with the key file that a configuration names.
func keyWarnings(c *config.Config) []string {
	if c.Replication == nil {
		return nil
	}
	err := c.Replication.CheckKey()
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return nil // to be read by root alone
	}
	return []string{err.Error()}
}

func printChecked(w io.Writer, r checkedFile) error {
	for _, m := range r.Mistakes {
		fmt.Fprintln(w, m)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	if r.Valid {
		fmt.Fprintf(w, "%s is valid: %d services, %d servers\n", r.Files[0], r.Services, r.Servers)
	}
	return nil
}
