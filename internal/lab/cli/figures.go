// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/figures"
)

func newFiguresCommand() *cobra.Command {
	root := "."
	check := false
	c := &cobra.Command{
		Use:   "figures FILE...",
		Short: "Write the figures of stored results into pages of the documentation",
		Long: `Write what the stored results say into the places of Markdown pages that are
marked for it. With --check write nothing, and name every page that differs and
every figure that looks measured and is not marked. The results are the history
of the benchmarks (` + figures.HistoryFile + `), files of results, and the
archived runs of the studies (` + figures.StudiesDir + `/STUDY).

A comment directly behind a figure names the result:

  <!-- = bench=path in=targets name="bulk, ratio to direct" figure=value -->
  <!-- = file=docs/bench/ipvs.json in=costs scheduler=rr|sh figure="over ipvs" stat=most -->
  <!-- = study=thesis metric=response_time of=rr at=2000/s -->
  <!-- = published=rr-vs-lc metric=throughput of=rr over=lc stat=least -->
  <!-- = logs=thesis figure=disagreeing -->
  <!-- = recordings=all figure=identical -->

and a verdict, sentences, table or setting stands between two comments:

  <!-- begin study=thesis show=table metric=response_time at=2000/s of="rr, lc" -->
  <!-- end -->

A figure keeps the decimals that it has on the page. Figures that are not
measured are exempt, up to the next heading or for a paragraph, by a comment
with their kind: limits, targets, method, published, example, versions,
generated.

  <!-- figures: limits -->

The exit status of --check is 1 if it names anything.`,
		Example: "  imbang-lab figures README.md docs/studies.md\n" +
			"  imbang-lab figures --check README.md docs/*.md",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the pages, such as README.md")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			store, bad := figures.Open(root), false
			for _, name := range args {
				old, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				page, problems := figures.Fill(string(old), store)
				for _, p := range problems {
					if check || !p.Unmarked {
						fmt.Fprintf(cmd.OutOrStdout(), "%s:%s\n", name, p)
						bad = true
					}
				}
				switch {
				case page == string(old):
				case check:
					fmt.Fprintf(cmd.OutOrStdout(), "%s: differs from the stored results\n", name)
					bad = true
				default:
					if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
						return err
					}
				}
			}
			if bad {
				return command.ErrNotAsExpected
			}
			return nil
		},
	}
	c.Flags().StringVar(&root, "root", root, "the directory that has docs/")
	c.Flags().BoolVar(&check, "check", false, "write nothing and name what differs or is not marked")
	return c
}
