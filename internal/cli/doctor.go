// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/config"
	"imbang/internal/doctor"
)

func newDoctorCommand() *cobra.Command {
	var out command.OutputFlag
	var client, server, file string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the host's settings, and print commands that fix problems or show their cause",
		Long: `Checks the kernel, IP forwarding, the devices' offloads, queues, MTU and XDP, and
the route to each virtual address and real server. If a daemon (imbang run) kept the director, or
the configuration has services, also whether one runs. If addresses move by VRRP (a process
imbang vrrp, or the section vrrp of the configuration), also the firewall's rules for
advertisements, sysctl settings of the devices, the clock, and what the process has
seen: faults, another master, stalls. Addresses that a killed process left guarded are
found, too. Of a pair, it compares the configurations and the clocks.

With listeners in the configuration, or a process imbang proxy, also HAProxy: whether it
is installed, new enough, runs and accepts the configuration, has the lease of imbang run, and enough
file descriptors; certificates that are damaged, expired or expire within 30 days; other
processes at the listeners' addresses, such as Debian's own haproxy; and addresses that
this host does not have. Without a director in the configuration, and without
one loaded, settings that only a director requires are not checked.

Prints a line for each finding: ok, warning (it works, but slower or not for all packets)
or problem (packets are lost), with a command that fixes it or shows its cause, if there
is one. It changes no setting and sends no packet. Without --client-dev and --server-dev it checks the devices that
the director is attached to; both are required before the first attach.

The exit status is 0 if every finding is ok and 1 if there is a warning or a problem.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if (client == "") != (server == "") {
				return command.Usage(errors.New("name both --client-dev and --server-dev (the same device may be both), or none"))
			}
			facts, err := doctor.Gather(client, server, file)
			if err != nil {
				return err
			}
			all := doctor.Examine(facts)
			err = out.Print(c.OutOrStdout(), all, func(w io.Writer) error {
				for _, f := range all {
					if _, err := fmt.Fprintln(w, f); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil && !doctor.Fine(all) {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[[]doctor.Finding](""))
	c.Flags().StringVar(&client, "client-dev", "", "device that clients' packets come in by")
	c.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE`, for its services and its sections vrrp and listeners; default that of the process that runs: imbang vrrp for vrrp, imbang run or imbang proxy for the others; else "+config.DefaultFile+" if it exists")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	c.Flags().StringVar(&server, "server-dev", "", "device that real servers' answers come in by")
	_ = c.RegisterFlagCompletionFunc("client-dev", completeDevices)
	_ = c.RegisterFlagCompletionFunc("server-dev", completeDevices)
	return c
}
