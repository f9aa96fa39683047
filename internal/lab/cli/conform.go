// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
	"imbang/internal/lab/conform"
)

// played is the outcome of one scenario.
type played struct {
	File       string `json:"file"`
	Scenario   string `json:"scenario"`
	Identical  bool   `json:"identical"`
	Difference string `json:"difference,omitempty"`
}

func newConformCommand() *cobra.Command {
	var out command.OutputFlag
	var mode string
	c := &cobra.Command{
		Use:   "conform FILE...",
		Short: "Repeat recorded scenarios of Linux's IPVS and compare the results",
		Long: `Repeats scenarios that were recorded on Linux's IPVS, each in network namespaces
of its own with real clients and servers, and compares every result with the
recorded one: the real server that replied, the counts of connections and their
states. With --mode xdp the director's XDP programs are tested, too. Prints the
first difference of each scenario. The exit status is 1 if there is one.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if !slices.Contains(director.Modes, director.Mode(mode)) {
				return command.UnknownMode(mode)
			}
			var progress io.Writer = io.Discard
			if out.Format == "text" {
				progress = c.OutOrStdout()
			}
			all, err := playFiles(c.Context(), files, director.Mode(mode), progress)
			if err != nil {
				return err
			}
			same := 0
			for _, p := range all {
				if p.Identical {
					same++
				}
			}
			err = out.Print(c.OutOrStdout(), all, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%d of %d scenarios identical\n", same, len(all))
				return err
			})
			if err == nil && same < len(all) {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[[]played](""))
	command.RegisterMode(c, &mode, string(director.ModeTC))
	return c
}

// playFiles reads all files before it plays the first.
func playFiles(ctx context.Context, files []string, mode director.Mode, progress io.Writer) ([]played, error) {
	var all []played
	var recordings []conform.Recording
	for _, file := range files {
		rs, err := conform.Read(file)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			recordings = append(recordings, r)
			all = append(all, played{File: file, Scenario: r.Scenario.Name})
		}
	}
	for i, r := range recordings {
		p := &all[i]
		diff, err := conform.Play(ctx, r, mode, conform.Ipvsadm)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted after %d of %d scenarios", i, len(recordings))
		}
		if errors.Is(err, conform.ErrCannotPlay) {
			p.Difference = err.Error()
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Scenario, err)
		} else if diff != nil {
			p.Difference = diff.String()
		}
		p.Identical = p.Difference == ""
		if p.Identical {
			fmt.Fprintf(progress, "identical  %s\n", p.Scenario)
		} else {
			fmt.Fprintf(progress, "different  %s: %s\n", p.Scenario, p.Difference)
		}
	}
	return all, nil
}
