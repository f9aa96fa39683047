// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
	"imbang/internal/model"
)

func newBenchPacketsCommand() *cobra.Command {
	var out command.OutputFlag
	config, worker := bench.PacketsConfig{}, false
	c := &cobra.Command{
		Use:   "packets",
		Short: "Time the data plane's programs, packet by packet",
		Long: `Runs packets through the loaded programs without a network (BPF_PROG_TEST_RUN),
on one CPU, and prints the time of each in nanoseconds. Devices, drivers and sockets are
not included. The time to make the packets is measured interleaved and subtracted. Prints
medians and ranges of the rounds.

Measures (--measures):
  established  packets of established connections, by number of connections in
               rotation, on the fast path, on the whole path and in XDP. A client
               address has 32768 connections; no server replies.
  new          packets that open a connection, by scheduler and number of real
               servers, from as few client addresses
  requests     packets of established connections: 1 connection, 65536 of 16384
               client addresses, 1048576 of 65536; masquerading, rr, 3 servers
  replies      packets of their servers, to 1, 1024, 16384 and 65536 client addresses
  ipv6         requests, replies to 65536 addresses, and new connections, by IPv6
  direct       requests with direct routing
  tunnel       requests with IP in IP. Each packet has a run and a buffer of its
               own, so caches are colder.
  services     requests of 65536 connections to 1 and to 16384 services
  opening      packets that open a connection in an empty table (wlc, 16384 client
               addresses): 10 servers, 10000 servers, and 16384 services with 10 each
  fill         the same with 10 servers in a table of 1048576 connections that is
               empty, 60 % and 95 % full
  routes       replies to 65536 addresses, without route changes and with 100
               unrelated ones a second
  contention   new connections that one CPU opens, and two at once: ns of each CPU

All but the first two are measured in modes tc and xdp, in random order in each round,
each case with a director of its own. Connections are opened by their handshakes. A row
that is marked "passed" is the time until XDP leaves such packets to the programs of tc.

--against measures another build of imbang-lab in the same rounds, and prints the ratio
to it, round by round. Targets of a cost are shares of the cost of that build; they were
set for commit be2e8518. Other targets compare rows with each other.

Requires root and, for all measures, 8 GB of memory: --most limits the numbers of
connections, addresses, servers and services.`,
		Example: `  imbang-lab bench packets
  imbang-lab bench packets --measures requests,replies,direct --output json
  imbang-lab bench packets --measures requests,replies,opening --against old/imbang-lab`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if worker {
				return bench.ServePackets(c.InOrStdin(), c.OutOrStdout())
			}
			if err := checkPackets(config); err != nil {
				return command.Usage(err)
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Packets(c.Context(), config)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printPackets(w, r) })
		},
	}
	out.Register(c, command.One[bench.PacketsResult](""))
	c.Flags().StringSliceVar(&config.Measures, "measures", bench.PacketMeasures(), "what to measure")
	c.Flags().StringSliceVar(&config.Schedulers, "schedulers", model.SchedulerNames(), "schedulers of the measure new")
	c.Flags().IntSliceVar(&config.Servers, "servers", []int{1, 3, 100, 1000, 10000}, "numbers of real servers of the measure new")
	c.Flags().IntSliceVar(&config.Flows, "flows", []int{1, 1 << 16, 1 << 20}, "numbers of connections of the measure established, powers of two")
	c.Flags().IntVar(&config.Packets, "packets", 20000, "packets of a round; of established connections of other measures at least one of each, up to 65536")
	c.Flags().IntVar(&config.Rounds, "rounds", 0, "rounds of each case; 0: 5 of the measures established and new, 9 of others")
	c.Flags().IntVar(&config.Most, "most", 0, "connections, addresses, servers and services of other measures at most, a power of two; 0: no limit")
	c.Flags().StringVar(&config.Against, "against", "", "`path` of another build's imbang-lab, to compare the measures other than established and new with")
	c.Flags().BoolVar(&worker, bench.WorkerFlag, false, "measure for another build")
	_ = c.Flags().MarkHidden(bench.WorkerFlag)
	return c
}

func checkPackets(c bench.PacketsConfig) error {
	for _, name := range c.Measures {
		if known := bench.PacketMeasures(); !slices.Contains(known, name) {
			return fmt.Errorf("unknown measure %q (%s)", name, strings.Join(known, ", "))
		}
	}
	for _, n := range c.Servers {
		if n < 1 || n > 60000 {
			return fmt.Errorf("--servers %d: want 1 to 60000", n)
		}
	}
	for _, n := range c.Flows {
		if !powerOfTwo(n, 1<<24) {
			return fmt.Errorf("--flows %d: want a power of two up to %d", n, 1<<24)
		}
	}
	if c.Packets < 1000 || c.Rounds < 0 {
		return errors.New("--packets, --rounds: want 1000 or more packets, and rounds that are not negative")
	}
	if c.Most != 0 && (c.Most < 16 || !powerOfTwo(c.Most, 1<<20)) {
		return fmt.Errorf("--most %d: want a power of two from 16 to %d, or 0", c.Most, 1<<20)
	}
	return nil
}

// powerOfTwo reports whether a number is one, at most so great.
func powerOfTwo(n, most int) bool { return n >= 1 && n <= most && n&(n-1) == 0 }

func printPackets(w io.Writer, r *bench.PacketsResult) error {
	cost := func(c bench.Cost) string { return fmt.Sprintf("%6.0f (%.0f to %.0f)", c.Median, c.Min, c.Max) }
	fmt.Fprintf(w, "ns a packet, median and range of %d rounds of %d packets; %s for making them taken off\n", r.Making.N, r.Packets, cost(r.Making))
	if len(r.Established) > 0 {
		fmt.Fprintf(w, "\n%-12s %-6s %10s %s\n", "established", "path", "flows", "ns")
	}
	for _, c := range r.Established {
		fmt.Fprintf(w, "%-12s %-6s %10d %s\n", c.Family, c.Path, c.Flows, cost(c.NS))
	}
	if len(r.New) > 0 {
		fmt.Fprintf(w, "\n%-12s %-6s %10s %s\n", "new, by", "path", "servers", "ns")
	}
	for _, c := range r.New {
		fmt.Fprintf(w, "%-12s %-6s %10d %s\n", c.Scheduler, c.Path, c.Servers, cost(c.NS))
	}
	printTraffic(w, r)
	for _, m := range r.Missing {
		fmt.Fprintln(w, m)
	}
	return printTargets(w, r.Targets)
}

// printTraffic prints the rows of many addresses. What is the same in all rows of a measure
// is in its name.
func printTraffic(w io.Writer, r *bench.PacketsResult) {
	if r.Other != nil {
		fmt.Fprintf(w, "\nthe other build: %s (%s)\n", r.Other.Version, r.Other.Commit)
	}
	for i, c := range r.Traffic {
		if i == 0 || c.Measure != r.Traffic[i-1].Measure {
			fmt.Fprintf(w, "\n%-12s %-4s %-8s %-10s %8s %9s %8s %8s  ns\n", c.Measure, "path", "packets", "method", "flows", "addresses", "services", "servers")
		}
		fmt.Fprintf(w, "%-12s %-4s %-8s %-10s %8d %9d %8d %8d  %6.0f (%.0f to %.0f)", c.Family, c.Path, c.Traffic, c.Forward, c.Flows,
			c.Addresses, c.Services, c.Servers, c.NS.Median, c.NS.Min, c.NS.Max)
		if c.Over != nil {
			fmt.Fprintf(w, "  /other %.2f (%.2f to %.2f)", c.Over.Median, c.Within.Low, c.Within.High)
		}
		for _, note := range []struct {
			is   bool
			text string
		}{
			{c.Filled > 0, fmt.Sprintf("%d %% full", c.Filled)}, {c.RouteChanges > 0, fmt.Sprintf("%d route changes/s", c.RouteChanges)},
			{c.CPUs > 1, fmt.Sprintf("%d CPUs at once", c.CPUs)}, {c.Passed, "passed"},
		} {
			if note.is {
				fmt.Fprint(w, "  ", note.text)
			}
		}
		fmt.Fprintln(w)
	}
}
