// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp/process"
)

func newVRRPCleanCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove the addresses that a killed imbang vrrp has left",
		Long: `Removes the addresses that imbang vrrp added in this network namespace and that it could
not remove, as it was killed. They have the protocol 0x70 in the output of ip address
show. Other addresses stay. If the process ended after SIGUSR2, before the new program
had taken over, it also resigns for the groups that were master: another director takes
over at once.

Then it ends what the process had the director do: addresses are not guarded any more,
and packets of unknown connections are neither dropped nor handed over. It does not
while an address cannot be removed.

The systemd unit runs it when the process has ended. A start of imbang vrrp removes the
addresses, too.

Requires root, and that imbang vrrp does not run. The exit status is 0, 2 for a wrong
command line, or 3 if it failed.`,
		Example: `  imbang vrrp clean
  imbang vrrp clean --log json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := unitLogger(format, c.ErrOrStderr())
			if err != nil {
				return command.Usage(err)
			}
			dir, err := place.VRRPDir()
			if err != nil {
				return err
			}
			return process.Clean(dir, log, openPlane)
		},
	}
	registerLog(c, &format)
	return c
}
