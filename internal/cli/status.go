// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/director"
)

func newStatusCommand() *cobra.Command {
	var out outputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show where the director is attached and what it did not forward",
		Long: `Shows the devices the director is attached to, the time its programs took
(while kernel.bpf_stats_enabled is 1), the sizes of its tables, and how many
packets it passed by, refused or dropped, by reason. Services, servers,
connections and their counters are ipvsadm's to show.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			d, err := director.Open()
			if err != nil {
				return err
			}
			defer d.Close()
			st, err := d.Status()
			if err != nil {
				return err
			}
			return out.print(c.OutOrStdout(), st, func(w io.Writer) error { return printStatus(w, st) })
		},
	}
	out.register(c)
	return c
}

func printStatus(w io.Writer, st director.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(st.Attachments) == 0 {
		fmt.Fprintln(t, "not attached to any device")
	}
	for _, a := range st.Attachments {
		fmt.Fprintf(t, "%s device\t%s\t%s\n", a.Role, a.Device, a.Hook)
	}
	fmt.Fprintf(t, "services\t%d of %d\n", st.Services, st.Capacity.Services)
	fmt.Fprintf(t, "room for servers\t%d\n", st.Capacity.Servers)
	fmt.Fprintf(t, "room for connections\t%d\n", st.Capacity.Connections)
	if st.Tracers > 0 {
		fmt.Fprintf(t, "tracers\t%d\n", st.Tracers)
	}
	for _, p := range st.Programs {
		if p.RunCount > 0 {
			fmt.Fprintf(t, "program %s\t%d runs\t%v\n", p.Name, p.RunCount, time.Duration(p.RunTime))
		}
	}
	for _, r := range st.Reasons {
		if r.Packets > 0 {
			fmt.Fprintf(t, "%s\t%s\t%d packets\n", verdictWords[r.Verdict], r.Reason, r.Packets)
		}
	}
	return t.Flush()
}

// verdictWords are the verdicts of reasons in whole words.
var verdictWords = map[string]string{"pass": "passed by", "refused": "refused", "drop": "dropped"}
