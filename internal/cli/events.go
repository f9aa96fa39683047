// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
)

func newEventsCommand() *cobra.Command {
	var out command.OutputFlag
	var follow bool
	var last int
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened: servers up and down, orders, reloads, alarms",
		Long: `Prints the latest events of the daemon of this network namespace (imbang run): when
something happened, to which service and server, and why. With --follow it goes
on with new ones until Ctrl-C. All of them, also of earlier daemons, are in the
file events.jsonl of the daemon's state directory.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: there is no
daemon.`,
		Example: `  imbang events
  imbang events --last 0 --follow
  imbang events --output json | jq 'select(.kind == "server-down")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if last < 0 {
				return command.Usage(fmt.Errorf("--last %d: want 0 or more", last))
			}
			d, err := api.NewClient()
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			return d.Events(c.Context(), last, follow, func(e events.Event) error {
				if out.Format == "json" {
					return json.NewEncoder(w).Encode(e)
				}
				return printDaemonEvent(w, e)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	c.Flags().IntVarP(&last, "last", "n", 100, "begin with the latest `N`, at most 1000")
	_ = c.RegisterFlagCompletionFunc("last", cobra.NoFileCompletions)
	out.Register(c, command.Lines[events.Event](""))
	return c
}

func printDaemonEvent(w io.Writer, e events.Event) error {
	var about []string
	for _, part := range []string{e.Service, e.Server} {
		if part != "" {
			about = append(about, part)
		}
	}
	by := ""
	if e.By != "" {
		by = ", by " + e.By
	}
	_, err := fmt.Fprintf(w, "%s  %-13s  %s\n", clock(e.Time.Local()), e.Kind, strings.TrimSpace(strings.Join(about, " ")+"  "+e.Text+by))
	return err
}
