// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/sandbox"
)

func newPsCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"status"},
		Short:   "List the clusters that up has built, and their nodes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			names, err := sandbox.Names()
			if err != nil {
				return err
			}
			clusters := []*sandbox.Cluster{} // not null in JSON
			for _, name := range names {
				cluster, err := sandbox.Find(name)
				if errors.Is(err, sandbox.ErrNone) {
					continue // it has just been removed
				}
				if err != nil {
					return err
				}
				clusters = append(clusters, cluster)
			}
			return out.Print(c.OutOrStdout(), clusters, func(w io.Writer) error { return printClusters(w, clusters) })
		},
	}
	out.Register(c, command.One[[]*sandbox.Cluster](""))
	return c
}

func printClusters(w io.Writer, clusters []*sandbox.Cluster) error {
	if len(clusters) == 0 {
		_, err := fmt.Fprintln(w, "there is no cluster; build one with: imbang-lab up")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tNODE\tADDRESSES\tNAMESPACE\tWEB SERVER")
	for _, c := range clusters {
		if !c.Ready {
			fmt.Fprintf(table, "%s\tunfinished: imbang-lab down %[1]s\n", c.Spec.Name)
		}
		for _, n := range c.Nodes {
			web := "-"
			if n.IsServer() {
				if web = "ended"; n.Running {
					web = fmt.Sprintf("pid %d", n.PID)
				}
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Spec.Name, n.Name, joinAddresses(n.Addresses), n.Namespace, web)
		}
	}
	return table.Flush()
}
