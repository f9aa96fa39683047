// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"imbang/internal/command"
)

func newConnsCommand() *cobra.Command {
	var out command.OutputFlag
	var w followWanted
	var follow bool
	c := &cobra.Command{
		Use:   "conns --follow",
		Short: "Print the openings, changes of state and ends of connections, live",
		Long:  followHelp,
		Example: `  imbang conns --follow
  imbang conns --follow --service 10.20.0.1:80 --kind open,close
  imbang conns --follow --templates --output json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if !follow {
				return command.Usage(errors.New("conns requires --follow (ipvsadm -Lnc lists connections)"))
			}
			return runFollow(c, w, out.Format == "json")
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print events until Ctrl-C")
	w.register(c)
	out.Register(c)
	return c
}
