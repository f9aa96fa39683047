// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/failover"
)

func newFailoverWatchCommand() *cobra.Command {
	w := failover.Watch{Servers: failover.DefaultPlan().Servers}
	var output command.OutputFlag
	c := &cobra.Command{
		Use:   "watch",
		Short: "Count transitions without a fault, under load",
		Long: `Build two directors between a client and servers, measure the capacity of the path
by a closed loop, send a share of it for a time, and count how often the addresses
move. Nothing fails meanwhile: each transition is a false one. After Ctrl-C what was
seen until then is printed, and everything is removed. If addresses moved, the messages
of the directors are kept in --logs.

Requires root, and for variants of keepalived and linux the packages that
imbang-lab run failover --help names. The exit status is 0 if there was no
transition, 1 if there was one, 2 for a wrong command line, or 3 if it failed.`,
		Example: `  imbang-lab run failover watch --for 1h
  imbang-lab run failover watch --variants imbang@10ms --load 0.5 --for 10m`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if err := w.Validate(); err != nil {
				return command.Usage(err)
			}
			own, err := findPrograms()
			if err != nil {
				return err
			}
			w.Programs = failover.Programs{Imbang: own.imbang, Lab: own.lab}
			if w.Logs == "" {
				w.Logs = filepath.Join("results", "failover-watch-"+time.Now().Format("20060102-150405"))
			}
			w.Say = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			seen, err := w.Run(ctx)
			if errors.Is(err, context.Canceled) {
				err = errors.New("interrupted")
			}
			if len(seen) > 0 {
				err = errors.Join(output.Print(cmd.OutOrStdout(), seen, func(out io.Writer) error { return failover.WatchText(out, seen) }), err)
			}
			for _, one := range seen {
				if err == nil && one.Transitions > 0 {
					return command.ErrNotAsExpected // it is printed
				}
			}
			return err
		},
	}
	fl := c.Flags()
	output.Register(c, command.One[[]failover.Watched](""))
	fl.StringSliceVar(&w.Variants, "variants", []string{"imbang@50ms", "imbang@10ms"}, "what directors run, one after the other")
	fl.DurationVar(&w.For, "for", 10*time.Minute, "time of each variant")
	fl.Float64Var(&w.Load, "load", 0.7, "load, as a share of the capacity of the path through the director")
	fl.StringVar(&w.Logs, "logs", "", "directory for the directors' messages if addresses moved (default results/failover-watch-TIMESTAMP)")
	_ = c.RegisterFlagCompletionFunc("variants", cobra.FixedCompletions(failover.DefaultVariants, cobra.ShellCompDirectiveNoFileComp))
	return c
}
