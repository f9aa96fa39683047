// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/sandbox"
)

func newDownCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "Remove clusters that up has built",
		Long: `Removes clusters that "imbang-lab up" has built, with their processes,
directors, network namespaces and files: those of the names, or ` + defaultCluster + ` without a name.
Also removes what an interrupted up has left. If there is no such cluster, it
says so and succeeds.`,
		ValidArgsFunction: completeClusters,
		RunE: func(c *cobra.Command, names []string) (err error) {
			switch {
			case all && len(names) > 0:
				return command.Usage(errors.New("down: give names or --all, not both"))
			case all:
				if names, err = sandbox.Names(); err != nil {
					return err
				}
			case len(names) == 0:
				names = []string{defaultCluster}
			}
			for _, name := range names {
				if err := sandbox.CheckName(name); err != nil {
					return command.Usage(err)
				}
			}
			var errs []error
			for _, name := range names {
				removed, err := sandbox.Down(name)
				switch {
				case err != nil:
					errs = append(errs, err)
				case removed:
					fmt.Fprintf(c.OutOrStdout(), "cluster %s is removed\n", name)
				default:
					fmt.Fprintf(c.OutOrStdout(), "there is no cluster %s\n", name)
				}
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove all clusters that up has built")
	return c
}
