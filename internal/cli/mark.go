// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
)

func newMarkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "mark",
		Short: "Mark packets by destination, for fwmark services",
		Long: `A fwmark service (ipvsadm -A -f MARK) matches packets that carry a firewall
mark. iptables and nftables set marks only after the director has processed the
packet, so the director has its own rules: packets to PREFIX get MARK. The
longest matching prefix applies. A packet that already has a mark keeps it.`,
	}
	c.AddCommand(&cobra.Command{
		Use:     "add PREFIX MARK",
		Short:   "Mark packets to a prefix",
		Example: "  imbang mark add 10.20.0.32/27 3",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			mark, err := parseMark(args[1])
			if err != nil {
				return err
			}
			return setMark(c.ErrOrStderr(), args[0], mark)
		},
	}, &cobra.Command{
		Use:   "delete PREFIX",
		Short: "Remove a rule",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return setMark(c.ErrOrStderr(), args[0], 0) },
	}, newMarkListCommand())
	return c
}

func newMarkListCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			d, err := director.Open()
			if err != nil {
				return err
			}
			defer d.Close()
			rules, err := d.Marks()
			return errors.Join(err, out.Print(c.OutOrStdout(), toMarkJSON(rules), func(w io.Writer) error {
				for _, r := range rules {
					if _, err := fmt.Fprintf(w, "%s %d\n", r.Prefix, r.Mark); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
	out.Register(c, command.One[[]markJSON](""))
	return c
}

// markJSON is a rule in JSON.
type markJSON struct {
	Prefix netip.Prefix `json:"prefix"`
	Mark   uint32       `json:"mark"`
}

// toMarkJSON is never nil: no rules are [], not null.
func toMarkJSON(rules []director.MarkRule) []markJSON {
	list := make([]markJSON, 0, len(rules))
	for _, r := range rules {
		list = append(list, markJSON(r))
	}
	return list
}

// parseMarked reads the prefix of a rule.
func parseMarked(prefix string) (netip.Prefix, error) {
	p, err := parsePrefix(prefix)
	switch {
	case err != nil:
		return p, err
	case p.Addr().Is4In6():
		return p, command.Usage(errors.New(prefix + " is an IPv4-mapped address" + unmapped(p)))
	case p != p.Masked():
		return p, command.Usage(fmt.Errorf("%s is not a prefix: its address has bits set after the prefix length (%s?)", prefix, p.Masked()))
	}
	return p, nil
}

// unmapped advises on a prefix of IPv4-mapped addresses.
func unmapped(p netip.Prefix) string {
	const mapped = 96 // bits in front of an IPv4 address in IPv6
	if p.Bits() < mapped {
		return "" // of more than IPv4
	}
	return fmt.Sprintf(": write it as %s", netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped).Masked())
}

func setMark(notes io.Writer, prefix string, mark uint32) error {
	p, err := parseMarked(prefix)
	if err != nil {
		return err
	}
	d, err := director.OpenOrLoad(director.Sizes{})
	if err != nil {
		return err
	}
	defer d.Close()
	rules, err := d.Marks()
	if err != nil {
		return err
	}
	if err := d.Mark(director.MarkRule{Prefix: p, Mark: mark}); err != nil || mark == 0 {
		return err
	}
	noteReplaced(notes, rules, director.MarkRule{Prefix: p, Mark: mark})
	return nil
}

// noteReplaced says which of the earlier rules a new one replaced.
func noteReplaced(w io.Writer, earlier []director.MarkRule, rule director.MarkRule) {
	for _, r := range earlier {
		if r.Prefix == rule.Prefix && r.Mark != rule.Mark {
			fmt.Fprintf(w, "imbang: note: %s had mark %d\n", r.Prefix, r.Mark)
		}
	}
}
