// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
)

func newSettingsCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "settings [NAME=VALUE...]",
		Short: "Show or change what Linux has under net.ipv4.vs, and remedies of ours",
		Long: `Without arguments, lists the settings; with NAME=VALUE, changes them, all or
none. Most have the names and meanings of Linux's net.ipv4.vs.*. Those that
Linux has not are 0 at first, which is to do as Linux does. All hold for this
director until it is removed. Packets that come afterwards obey them.

The defence modes drop_entry, drop_packet and secure_tcp are 0 (never), 1
(automatic: while there is no room for connections, when they are shown as 2)
or 3 (always). Linux's automatic ones go by free memory, for which BPF
programs cannot ask; its amemthresh is therefore refused.

Timeouts are set as ever: imbang ipvsadm --set TCP TCPFIN UDP.`,
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
			if output != "text" && output != "json" {
				return command.Usage(fmt.Errorf("--output %q: want text or json", output))
			}
			if len(args) == 0 {
				return listSettings(c.OutOrStdout(), output)
			}
			return changeSettings(args)
		},
	}
	c.Flags().StringVar(&output, "output", "text", "text or json")
	return c
}

func listSettings(out io.Writer, format string) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.Settings()
	if err != nil {
		return err
	}
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\n", s.Name, s.Value, s.Help)
	}
	return w.Flush()
}

func changeSettings(args []string) error {
	var changes []director.Setting
	for _, a := range args {
		s, err := director.ParseSetting(a)
		if err != nil {
			return command.Usage(err)
		}
		changes = append(changes, s)
	}
	d, err := director.OpenOrLoad(director.Sizes{})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Set(changes...)
}
