// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"imbang/internal/director"
)

func newMarkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "mark",
		Short: "Mark packets by destination, for fwmark services",
		Long: `A fwmark service (ipvsadm -A -f MARK) takes the packets that carry a firewall
mark. iptables and nftables set marks only after the director has seen the
packet, so the director has rules of its own: packets to PREFIX carry MARK. The
longest prefix counts; a mark that a packet brings along comes first.`,
	}
	c.AddCommand(&cobra.Command{
		Use:     "add PREFIX MARK",
		Short:   "Mark packets to a prefix",
		Example: "  imbang mark add 10.20.0.32/27 3",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			mark, err := parseMark(args[1])
			if err != nil {
				return err
			}
			return setMark(args[0], mark)
		},
	}, &cobra.Command{
		Use:   "delete PREFIX",
		Short: "Remove a rule",
		Args:  cobra.ExactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return setMark(args[0], 0) },
	}, &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := director.Open()
			if err != nil {
				return err
			}
			defer d.Close()
			rules, err := d.Marks()
			for _, r := range rules {
				fmt.Fprintf(c.OutOrStdout(), "%s %d\n", r.Prefix, r.Mark)
			}
			return err
		},
	})
	return c
}

func setMark(prefix string, mark uint32) error {
	p, err := parsePrefix(prefix)
	if err != nil {
		return err
	}
	d, err := director.OpenOrLoad(director.Sizes{})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Mark(director.MarkRule{Prefix: p, Mark: mark})
}
