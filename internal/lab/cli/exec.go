// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"imbang/internal/lab/sandbox"
)

func newExecCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "exec [--name NAME] NODE [COMMAND [ARGUMENT...]]",
		Short: "Run a command in a node of a cluster",
		Long: `Runs a command in the network namespace of a node: director, client1 or client,
server1 and so on. Without a command it runs the shell ($SHELL, or /bin/sh). Input,
output, signals and the exit status are those of the command; the status is 127 if
the command does not exist, 126 if it cannot be executed.

imbang and ipvsadm are the programs that the cluster was built with. In the
director they administer the cluster's director. The node shares processes and
files with this machine, except /sys, which shows the node's devices.

  imbang-lab exec director ipvsadm -Ln
  imbang-lab exec client curl -s http://10.20.0.1/
  imbang-lab exec director            a shell`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return completeNodes(name, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			cluster, err := sandbox.Find(name)
			if err != nil {
				return err
			}
			argv := args[1:]
			if len(argv) == 0 {
				argv = []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
			}
			err = cluster.Exec(args[0], argv) // returns only if it fails
			if not := (*sandbox.NotRun)(nil); errors.As(err, &not) {
				fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.Root().Name(), err)
				os.Exit(not.Status())
			}
			return err
		},
	}
	c.Flags().SetInterspersed(false) // flags behind the node are the command's
	registerCluster(c, &name)
	return c
}

// completeNodes completes the name of a node, then leaves files to the shell.
func completeNodes(name string, args []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	cluster, err := sandbox.Find(name)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, n := range cluster.Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
