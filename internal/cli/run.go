// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/place"
)

func newRunCommand() *cobra.Command {
	var o daemon.Options
	var format string
	c := &cobra.Command{
		Use:   "run [-c FILE]",
		Short: "Keep the director as a configuration says, and check its servers",
		Long: `Applies a configuration file to the director of this network namespace, and then
checks the real servers, applies operators' orders (imbang drain, maintenance,
enable, weight), and keeps devices attached and virtual addresses configured. It runs in
the foreground until SIGINT or SIGTERM; the director and its table stay.

If the daemon is killed, packets are balanced as before. The next one takes
over what there is: if the configuration is the one that was applied last, it
changes nothing but the health of servers.

The file owns what it names. Between reloads the daemon writes servers' health,
and weights set by order; other changes, by ipvsadm or imbang, hold until the
next reload, and imbang status shows them as drift. Services and servers that
the file does not name are never changed.

SIGHUP and imbang reload apply the file again. A file that is not valid, or that
deletes more servers than daemon.max_removed, changes nothing. At the start, these
servers stay in the table, unchecked, with the alarm max-removed, and the rest is applied;
if servers of layer 7 are among them, the daemon does not start. imbang check FILE
tries a file without a daemon.

Under systemd the log goes to the journal with the fields IMBANG_EVENT,
IMBANG_SERVICE, IMBANG_SERVER and IMBANG_BY.

The exit status is 0 after a signal, 2 for a wrong command line, or 3 if it failed.`,
		Example: `  imbang run
  imbang run -c /etc/imbang/imbang.yaml --log json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := unitLogger(format, c.ErrOrStderr())
			if err != nil {
				return command.Usage(err)
			}
			o.Log = log
			o.Ready = daemon.Ready
			return daemon.Run(c.Context(), o)
		},
	}
	registerConfig(c, &o.File)
	c.Flags().StringVar(&o.State, "state", place.State, "`DIRECTORY` of orders and of the log of events")
	_ = c.MarkFlagDirname("state")
	c.Flags().BoolVar(&o.Force, "force", false, "apply the configuration even if it deletes more servers than daemon.max_removed")
	registerLog(c, &format)
	return c
}

func registerConfig(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "config", "c", config.DefaultFile, "configuration `FILE`")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
}
