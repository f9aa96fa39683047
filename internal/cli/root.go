// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of imbang: one file for each verb. It
// parses, calls the package that does the work, and prints. Exit statuses are
// those of package command; called as ipvsadm, they are ipvsadm's.
package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"imbang/internal/command"
)

// Main runs the program with its arguments, its name first.
func Main(args []string) int {
	// ipvsadm parses its own arguments, as popt does.
	switch filepath.Base(args[0]) {
	case "ipvsadm", "imbang-ipvsadm":
		return ipvsadmMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	args = args[1:]
	if len(args) > 0 && args[0] == "ipvsadm" {
		return ipvsadmMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	if theirs, is := labArguments(args); is {
		err := execLab(theirs) // returns only if it fails
		fmt.Fprintf(os.Stderr, "imbang: %v\n", err)
		return command.StatusFailed
	}
	return command.Main(newRootCommand(), args)
}

// Command is the program's command with all its verbs, for the reference pages.
func Command() *cobra.Command { return newRootCommand() }

func newRootCommand() *cobra.Command {
	const long = `imbang balances connections to a virtual address over real servers, in the
kernel, as Linux's IPVS does, on kernels that need no ip_vs module. It is
administered by ipvsadm's command line and measured by its own laboratory, the
program imbang-lab.

  imbang attach --client-dev eth0 --server-dev eth1   load the director
  imbang ipvsadm -A -t 10.20.0.1:80 -s wlc            a virtual service
  imbang ipvsadm -a -t 10.20.0.1:80 -r 172.16.0.2 -m  a real server
  imbang run -c imbang.yaml                           keep all of it as a file says, and check the servers
  imbang drain 172.16.0.2                             give a server no new connections
  imbang weight                                       servers' weights and health
  imbang stats                                        counters that no -Z resets
  imbang status                                       what it is doing
  imbang conns --client 10.10.0.0/16                  its connections; --import adds those of another director
  imbang migrate                                      take over from a director with ip_vs, and give back
  imbang trace                                        how packets are handled, live
  imbang conns --follow                               connections that open, change and end, live
  imbang why 10.10.0.2:1234 10.20.0.1:80              where a connection goes, and why
  imbang sync backup --interface eth1                 receive the connections of another director
  imbang vrrp                                         move addresses between directors
  imbang proxy                                        balance HTTP, by HAProxy
  imbang failover                                     move them to the other director, as planned
  imbang peer diff                                    how two directors' configurations differ; push makes them one
  imbang doctor                                       the host's settings, and how to fix them
  imbang upgrade                                      replace its programs and keep its connections
  imbang audit                                        check its tables for faults
  imbang detach                                       remove it
  imbang lab up                                       a cluster in network namespaces, to try it
  imbang lab run thesis --quick                       compare ten schedulers
  imbang lab replay access.log                        the same for your own traffic

A symlink to this program named ipvsadm or imbang-ipvsadm behaves as ipvsadm.`
	root := command.NewRoot("imbang", "Linux Virtual Server in eBPF", long,
		append([]*cobra.Command{newAttachCommand(), newDetachCommand(), newRunCommand(), newVRRPCommand(), newProxyCommand(), newFailoverCommand(), newSyncCommand(), newCheckCommand(), newImportCommand(), newMigrateCommand(), newInitCommand(), newPlanCommand(), newReloadCommand(), newDrainCommand(), newEnableCommand(), newMaintenanceCommand(), newEventsCommand(), newPeerCommand(),
			newStatusCommand(), newConnsCommand(), newTraceCommand(), newWhyCommand(),
			newWeightCommand(), newStatsCommand(), newMarkCommand(), newSettingsCommand(), newUpgradeCommand(), newDoctorCommand(), newAuditCommand(), newIpvsadmCommand(), command.NewVersion()},
			newLabCommands()...)...)
	registerLockTimeout(root)
	return root
}
