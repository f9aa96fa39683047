// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"imbang/internal/command"
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
			w := bufio.NewWriter(c.OutOrStdout())
			for _, r := range rules {
				fmt.Fprintf(w, "%s %d\n", r.Prefix, r.Mark)
			}
			return errors.Join(err, w.Flush())
		},
	})
	return c
}

// masked is the prefix that may have been meant.
func masked(p netip.Prefix) netip.Prefix {
	const mapped = 96 // bits in front of an IPv4 address in IPv6
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked()
}

func setMark(prefix string, mark uint32) error {
	p, err := parsePrefix(prefix)
	if err != nil {
		return err
	}
	if p != p.Masked() || p.Addr().Is4In6() {
		return command.Usage(fmt.Errorf("%s is not a prefix: its address has bits behind it (%s?)", prefix, masked(p)))
	}
	d, err := director.OpenOrLoad(director.Sizes{})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Mark(director.MarkRule{Prefix: p, Mark: mark})
}
