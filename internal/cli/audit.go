// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
)

func newAuditCommand() *cobra.Command {
	var out command.OutputFlag
	var options director.AuditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Look for faults in the kernel's tables",
		Long: `Compares the kernel's tables with each other: connections with the buckets that
lead to them, servers' counts with the connections there are, lists of servers
with the servers, the schedulers' memory with the services. It takes no lock, so that
traffic and other commands continue. A finding is reported only if it holds in
two passes; entries that change too fast to be checked are not reported.

With --repair, counts are corrected, connections are put back into their
buckets, and unused entries are deleted, under the director's lock; then the
tables are examined again. Each repair is reported.

The exit status is 0 if no fault was found (with --repair: none is left), 1 if
there are faults, 2 for a wrong command line and 3 if the audit failed.`,
		Example: `  imbang audit
  imbang audit --repair -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if options.Interval <= 0 || options.Interval > director.MaxAuditInterval {
				return command.Usage(fmt.Errorf("--interval %v: want more than 0 and at most %v", options.Interval, director.MaxAuditInterval))
			}
			return audit(c, out, options)
		},
	}
	c.Flags().DurationVar(&options.Interval, "interval", director.DefaultAuditInterval, "time between the two passes")
	c.Flags().BoolVar(&options.Repair, "repair", false, "correct what can be corrected")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
	out.Register(c, command.One[director.AuditReport](""))
	return c
}

func audit(c *cobra.Command, out command.OutputFlag, options director.AuditOptions) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	clear := func() {}
	if w := c.ErrOrStderr(); terminal(w) {
		const eraseLine = "\r\x1b[K"
		options.Progress = func(step string) { fmt.Fprintf(w, eraseLine+"%s", step) }
		clear = func() { fmt.Fprint(w, eraseLine) }
	}
	report, err := d.Audit(c.Context(), options)
	clear()
	if err != nil {
		return err
	}
	if err := out.Print(c.OutOrStdout(), report, func(w io.Writer) error { return printAudit(w, &report) }); err != nil {
		return err
	}
	if !report.Clean() {
		return command.ErrNotAsExpected
	}
	return nil
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func printAudit(w io.Writer, r *director.AuditReport) error {
	took := time.Duration(r.Took).Round(time.Millisecond)
	fmt.Fprintf(w, "%d connections, %d templates, ", r.Connections, r.Templates)
	if len(r.NotJudged) == 0 {
		fmt.Fprintf(w, "%d services, %d servers", r.Services, r.Servers)
	} else {
		fmt.Fprint(w, "services and servers not read")
	}
	switch {
	case len(r.Findings) > 0:
		fmt.Fprintf(w, ": %s (%v)\n", count(uint32(len(r.Findings)), "finding"), took)
	case len(r.NotJudged) > 0:
		fmt.Fprintf(w, ": nothing found in what was judged (%v)\n", took)
	default:
		fmt.Fprintf(w, ": sound (%v)\n", took)
	}
	if err := printFindings(w, r.Findings); err != nil {
		return err
	}
	for kind, n := range r.Omitted {
		fmt.Fprintf(w, "%d more of kind %s\n", n, kind)
	}
	for _, part := range r.NotJudged {
		fmt.Fprintf(w, "not judged: %s\n", part)
	}
	if r.Rounds < 2 {
		return nil
	}
	if len(r.Remaining) == 0 {
		fmt.Fprintf(w, "repaired: nothing is left\n")
		return nil
	}
	fmt.Fprintf(w, "left after the repair:\n")
	return printFindings(w, r.Remaining)
}

func printFindings(w io.Writer, all []director.AuditFinding) error {
	if len(all) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "KIND\tOBJECT\tDETAIL\tREPAIR\n")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Kind, f.Object, f.Detail, f.Repair)
	}
	return t.Flush()
}
