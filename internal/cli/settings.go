// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
)

func newSettingsCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "settings [NAME=VALUE...]",
		Short: "Show or change settings: those of Linux's net.ipv4.vs, and imbang's own",
		Long: `Without arguments, lists the settings. With NAME=VALUE, changes them, all or
none. Most have the names and meanings of Linux's net.ipv4.vs.*. Linux does not
have client_share, drain_timeout, hairpin, hash_fallback, reply_filter and
syn_defence. The first four are 0 by default and then change nothing. syn_defence
is 1 by default: clients are challenged during a SYN flood. reply_filter is 2 by
default: packets with a server's address count only from the server's side. With
0 the director behaves as Linux does.
A setting applies to later packets, and lasts until the director is removed.

The defence modes drop_entry, drop_packet and secure_tcp are 0 (never), 1
(automatic: active while the connection table is full, and then shown as 2) or
3 (always). Linux's automatic modes depend on free memory, which BPF programs
cannot read; its setting amemthresh is therefore rejected.

Timeouts are set with imbang ipvsadm --set TCP TCPFIN UDP.`,
		Example: `  imbang settings
  imbang settings expire_nodest_conn=1 expire_quiescent_template=1
  imbang settings drop_entry=1
  imbang settings drop_packet=3 am_droprate=5`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var words []string
			for _, name := range director.SettingNames() {
				words = append(words, name+"=")
			}
			return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if len(args) == 0 {
				return listSettings(c.OutOrStdout(), out)
			}
			return changeSettings(args)
		},
	}
	out.Register(c, command.One[[]director.Setting](""))
	return c
}

func listSettings(w io.Writer, out command.OutputFlag) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.Settings()
	if err != nil {
		return err
	}
	return out.Print(w, all, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, s := range all {
			fmt.Fprintf(t, "%s\t%d\t%s\n", s.Name, s.Value, s.Help)
		}
		return t.Flush()
	})
}

func changeSettings(args []string) error {
	var changes []director.Setting
	for _, a := range args {
		s, err := director.ParseSettings(a)
		if err != nil {
			return command.Usage(err)
		}
		changes = append(changes, s...)
	}
	d, err := director.OpenOrLoad(director.Sizes{})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Set(changes...)
}
