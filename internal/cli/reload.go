// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/place"
)

func newPlanCommand() *cobra.Command {
	var state string
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show what applying a configuration would change",
		Long: `Lists the changes that imbang reload would make now, one a line, or those of
another configuration file. It asks the daemon of this network namespace (imbang
run); without one it lists what imbang run -c FILE would change in the table when it
starts (FILE by default ` + config.DefaultFile + `). It changes nothing. Requires
root, or, with a daemon and without FILE, membership of group imbang: the daemon
reads FILE with root's permissions, so only root may name one.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: the file is not
valid, or the table cannot be read.`,
		Example: `  imbang plan
  imbang plan new.yaml --output json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error {
			var q api.PlanRequest
			if len(args) == 1 {
				path, err := filepath.Abs(args[0]) // the daemon may be in another directory
				if err != nil {
					return err
				}
				q.File = path
			}
			return printPlanned(c, out, func(ctx context.Context, d *api.Client) (*api.Plan, error) {
				p, err := d.Plan(ctx, q)
				if errors.Is(err, api.ErrNoDaemon) {
					return daemon.PlanAlone(cmp.Or(q.File, config.DefaultFile), state)
				}
				return p, err
			})
		},
	}
	c.Flags().StringVar(&state, "state", place.State, "without a daemon: `DIR` of its state, as of imbang run")
	out.Register(c, command.One[api.Plan](""))
	return c
}

func newReloadCommand() *cobra.Command {
	var out command.OutputFlag
	var q api.ReloadRequest
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon apply its configuration file again",
		Long: `Has the daemon of this network namespace (imbang run) read its configuration file
and change the table as the file says: no more than differs. A file that is not
valid changes nothing, and neither does one that deletes more servers than its
key daemon.max_removed allows, without --force. imbang plan shows the changes
before. Replication is started again if its key file has another key. If there are
listeners it returns when HAProxy has followed, or with a warning after 15 s. Requires
root or membership of group imbang.

The exit status is 0, 2 for a wrong command line, or 3 if it failed; then the
table is as it was.`,
		Example: `  imbang check /etc/imbang/imbang.yaml && imbang plan && imbang reload`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return printPlanned(c, out, func(ctx context.Context, d *api.Client) (*api.Plan, error) { return d.Reload(ctx, q) })
		},
	}
	c.Flags().BoolVar(&q.Force, "force", false, "even if more servers are deleted than daemon.max_removed allows")
	out.Register(c, command.One[api.Plan](""))
	return c
}

func printPlanned(c *cobra.Command, out command.OutputFlag, ask func(context.Context, *api.Client) (*api.Plan, error)) error {
	if err := out.Check(); err != nil {
		return err
	}
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	p, err := ask(c.Context(), d)
	if err != nil {
		return err
	}
	return out.Print(c.OutOrStdout(), p, func(w io.Writer) error {
		for _, line := range p.Changes {
			fmt.Fprintln(w, line)
		}
		_, err := fmt.Fprintln(w, p.Summary)
		warn(c.ErrOrStderr(), p.Warnings)
		return err
	})
}
