// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newIpvsadmCommand is there for the help; Main takes the verb before cobra.
func newIpvsadmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ipvsadm ...",
		Short: "Administer services and servers with ipvsadm's command line",
		Long: `Takes ipvsadm's arguments and prints what ipvsadm prints (imbang ipvsadm -h).
A symlink to this program named ipvsadm does the same, and so does the program
imbang-ipvsadm, which starts faster.`,
		DisableFlagParsing: true,
	}
}
