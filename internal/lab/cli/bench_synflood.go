// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
)

func newBenchSynFloodCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.SynFloodConfig{}
	c := &cobra.Command{
		Use:   "synflood",
		Short: "Flood the director with packets of invented clients and measure real ones",
		Long: `Builds a cluster in network namespaces and floods a service with packets from
spoofed source addresses, each different. Connections that were opened before the
flood send requests during it; other clients, each from an address of its own, open
connections to the flooded service and to another one. Compares interleaved, each with
a director of its own: no defence, Linux's drop_entry, and syn_defence. Prints
the rate that the flood had, what was lost, how long connecting took, how full
the table was in the end, and how busy the machine.

--kind says what is sent, all but the first one only against syn_defence:

  syn        SYNs
  handshake  a SYN and an acknowledgement behind it, as of a client that has seen
             the server's reply
  udp        datagrams to a service of UDP; flows of that service which were there
             before are to reach their servers in the end
  sctp       INITs to a service of SCTP
  prefix     SYNs from the addresses of one IPv6 /64

The generator is a thread on one CPU; it, the director, the servers and the clients
share the machine. If the machine is too slow, the flood is slower than --rate, and
the output says so.

The exit status is 1 if with syn_defence a request of an established connection was
lost (of other kinds than syn: more than 0.1 %), less than 95 % of the new connections to
the flooded service or 99 % of those to the other one succeeded, or a flow ended.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if err := config.Kind.Check(); err != nil {
				return command.Usage(err)
			}
			if config.Rate < 1 || config.Duration < time.Second || config.Rounds < 1 || config.Newcomers < 1 || config.Requests < 1 || config.Room < 1 {
				return command.Usage(errors.New("--rate, --duration, --rounds, --new, --requests, --max-connections: want 1 or more"))
			}
			if config.Established < 1 || config.Established > 500 {
				return command.Usage(fmt.Errorf("--established %d: want 1 to 500", config.Established))
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.SynFlood(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printSynFlood(w, r) })
			if err == nil && !r.Defended {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.SynFloodResult](""))
	c.Flags().StringVar((*string)(&config.Kind), "kind", string(bench.FloodSYN), "what is sent: syn, handshake, udp, sctp or prefix")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(floodKinds(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().IntVar(&config.Rate, "rate", 210000, "packets per second")
	c.Flags().DurationVar(&config.Duration, "duration", 15*time.Second, "length of each flood")
	c.Flags().IntVar(&config.Established, "established", 50, "connections that are opened before the flood")
	c.Flags().IntVar(&config.Requests, "requests", 500, "requests per second on all of them")
	c.Flags().IntVar(&config.Newcomers, "new", 50, "new connections per second")
	c.Flags().IntVar(&config.Room, "max-connections", 1<<18, "room in the director's table")
	c.Flags().IntVar(&config.Rounds, "rounds", 3, "rounds")
	c.Flags().IntVar(&config.CPU, "cpu", 0, "CPU on which the generator runs")
	return c
}

func floodKinds() (names []cobra.Completion) {
	for _, k := range bench.FloodKinds {
		names = append(names, string(k))
	}
	return names
}

func printSynFlood(w io.Writer, r *bench.SynFloodResult) error {
	fmt.Fprintf(w, "floods of %s for %.0f s, %d packets/s wanted, room for %d connections, %d CPUs\n", r.Kind, r.Seconds, r.Rate, r.Room, r.CPUs)
	for _, p := range r.Policies {
		fmt.Fprintf(w, "%s (%s)\n", p.Name, strings.Join(p.Settings, " "))
		fmt.Fprintf(w, "  flood                %9.0f packets/s (%.0f to %.0f)\n", p.Rate.Median, p.Rate.Min, p.Rate.Max)
		fmt.Fprintf(w, "  established          %9d of %d requests lost, %d connections broken\n", p.Lost, p.Requests, p.Broken)
		if p.Newcomers > 0 {
			fmt.Fprintf(w, "  new connections      %8.1f %% (%.1f to %.1f) of %d succeeded\n", 100*p.Success.Median, 100*p.Success.Min, 100*p.Success.Max, p.Newcomers)
		}
		fmt.Fprintf(w, "  ... to the other one %8.1f %% (%.1f to %.1f) of %d succeeded\n", 100*p.OthersSuccess.Median, 100*p.OthersSuccess.Min, 100*p.OthersSuccess.Max, p.OthersTried)
		if p.Flows > 0 {
			fmt.Fprintf(w, "  flows of UDP         %9d of %d reach their server in the end\n", p.FlowsAlive, p.Flows)
		}
		if p.ConnectP50.N > 0 {
			fmt.Fprintf(w, "  connecting took      %9.1f ms p50, %.1f ms p99 (%.1f to %.1f)\n", p.ConnectP50.Median, p.ConnectP99.Median, p.ConnectP99.Min, p.ConnectP99.Max)
		}
		fmt.Fprintf(w, "  table                %9.0f connections in the end, %.0f were opened\n", p.Connections.Median, p.Reached.Median)
		fmt.Fprintf(w, "  CPU                  %8.0f %% of the machine, %.0f %% of one for the generator and what the director did at once\n", 100*p.CPU.Median, 100*p.Generator.Median)
	}
	if !r.FullSpeed {
		fmt.Fprintln(w, "The machine could not make the flood that was asked for while it was defended against.")
	}
	return printTargets(w, r.Targets)
}
