// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/place"
)

// checkedFile is what imbang check prints.
type checkedFile struct {
	Valid    bool     `json:"valid"`
	Files    []string `json:"files"`
	Services int      `json:"services"`
	Servers  int      `json:"servers"`
	Mistakes []string `json:"mistakes"`
	Warnings []string `json:"warnings"` // of a valid file
	layer7   string
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
as the user can read it: the file may be written later. It warns of scripts of checks
and of VRRP that their user cannot execute on this machine, and of notify, quorum and mail
commands that root cannot execute, as far as that can be seen. If HAProxy is installed it checks
listeners and backends, too: its mistakes have the name of the listener or backend in
place of the line. It warns of files that are damaged or missing while their last good
copies are in use, of certificates that are not valid now or expire within 30 days, as far as
the user can read them, and of directories of access logs that do not exist.

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
				if l := loaded.Layer7; l != nil {
					r.layer7 = fmt.Sprintf(", %d listeners, %d backends", len(l.Listeners), len(l.Backends))
				}
				r.Warnings = append(r.Warnings, loaded.Warnings...)
				r.Warnings = append(r.Warnings, keyWarnings(loaded)...)
				r.Warnings = append(r.Warnings, scriptWarnings(loaded)...)
				r.Warnings = append(r.Warnings, commandWarnings(loaded)...)
				warnings, err := checkProxy(c.Context(), loaded)
				r.Warnings = append(r.Warnings, warnings...)
				if err != nil {
					r.Valid, r.Mistakes = false, append(r.Mistakes, strings.Split(err.Error(), "\n")...)
				}
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

// scriptWarnings are why scripts of checks and of VRRP cannot be run on this machine.
func scriptWarnings(c *config.Config) (list []string) {
	warn := func(what, name string, s *check.Script, effect string) {
		text := s.Obstacle()
		if text == "" {
			return
		}
		if text = fmt.Sprintf("%s %s: %s; %s", what, name, text, effect); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	for pool := range c.Pools() {
		for _, one := range pool.Servers {
			for _, ch := range one.Checks {
				if s, is := ch.Spec.(*check.Script); is {
					warn("check", ch.Name, s, "until then it changes no server's state")
				}
			}
		}
	}
	if c.VRRP == nil {
		return list
	}
	for _, s := range c.VRRP.Scripts {
		warn("script", s.Name, &check.Script{Command: s.Command, User: s.User}, "until then it has no new result")
	}
	return list
}

// commandWarnings are why commands that run because of events cannot be run on this machine.
func commandWarnings(c *config.Config) (list []string) {
	for _, one := range c.Commands {
		if text := check.RootsObstacle(one.Words); text != "" {
			list = append(list, one.Warning(text+"; until then it fails"))
		}
	}
	return list
}

// checkProxy has HAProxy check listeners and backends, if it is installed.
func checkProxy(ctx context.Context, c *config.Config) (warnings []string, err error) {
	if c.Layer7 == nil {
		return nil, nil
	}
	dir, err := place.ProxyDir()
	if err != nil {
		return nil, err
	}
	for _, pair := range carry.Pairs(&c.Layer7.Config) {
		if text, _ := pair.Validity(time.Now()); text != "" {
			warnings = append(warnings, text)
		}
	}
	said, err := carry.Check(ctx, dir, "", &c.Layer7.Config)
	warnings = append(warnings, said...)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return append(warnings, "HAProxy did not check listeners and backends: install the package haproxy"), nil
	case errors.Is(err, fs.ErrPermission):
		return append(warnings, fmt.Sprintf("HAProxy did not check listeners and backends: %s (root can)", err)), nil
	}
	if err != nil {
		return warnings, err
	}
	wrong := carry.Unusable(&c.Layer7.Config)
	for _, path := range slices.Sorted(maps.Keys(wrong)) {
		warnings = append(warnings, wrong[path].Error()+", and the last good one stays in use")
	}
	for _, dir := range carry.NoLogDirectories(&c.Layer7.Config) {
		warnings = append(warnings, fmt.Sprintf("access logs: the directory %s does not exist: lines are lost until it does", dir))
	}
	return warnings, nil
}

func printChecked(w io.Writer, r checkedFile) error {
	for _, m := range r.Mistakes {
		fmt.Fprintln(w, m)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	if r.Valid {
		fmt.Fprintf(w, "%s is valid: %d services, %d servers%s\n", r.Files[0], r.Services, r.Servers, r.layer7)
	}
	return nil
}
