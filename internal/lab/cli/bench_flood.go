// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
	"imbang/internal/model"
)

func newBenchFloodCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.FloodConfig{}
	var read string
	c := &cobra.Command{
		Use:   "flood",
		Short: "Measure the cost of a packet end to end, in a flood of packets",
		Long: `Sends UDP datagrams of the shortest length as fast as one CPU can into the device
of a director in a network namespace. The director sends them on to real servers,
which are addresses behind its other device: there every packet is counted by its
destination and dropped at once. Devices are veth pairs, so that the sender's CPU
does all of the work.

Packets arrive at the director's device as from a NIC's driver: frames in pages of a
pool, without socket buffers. An XDP program gets the frames. Without an XDP program
the device makes socket buffers of them, with GRO on.

The cost of a packet is the time of this CPU, without that of other tasks, divided by
the packets sent; of a sample, the median of its 16 parts. The director's own cost is
the cost minus that of a director that does nothing, "noop", in the same round: there
the program that drops the packets at the servers does so on the director's client
device. The own cost is therefore that of finding the connection and the route, of
rewriting, and of the second device.

A ratio subtracts the same from both sides: noop-xdp if that is the noop of one of
them, else noop. The socket buffer, which XDP mode does not need, is therefore a cost
of the other side.

Traffic (--traffic):
  one        packets of one established connection
  many       packets of --flows established connections, in rotation
  new        each packet opens a connection, until there are --flows
  requests   as many, from 16384 client addresses instead of 32768
  opening    as new, from as many addresses
  mix        as requests; one frame of ten has 1514 bytes
  replies    packets of one real server to the clients of --flows established
             connections, in rotation: they come in by the other device
The first three share a table, and so do the next three. replies has one of its own.

Competitors:
  plain      the kernel forwards; packets are addressed to the servers in turn
  nftables   destination NAT with connection tracking (schedulers rr and sh)
  nftables-flowtable
             the same; later packets of a connection take the flowtable at the
             ingress hook (kernels with CONFIG_NF_FLOW_TABLE)
  ipvs       the kernel's IPVS, masquerading, where the kernel has it; without
             connection tracking (net.ipv4.vs.conntrack=0)
  imbang-tc  imbang attach --mode tc --redirect device: packets leave through
             the device, as those of all others do
  imbang-tc-peer
             the same with --redirect peer, the shortcut of veth pairs into
             containers, which no network card offers
  imbang-xdp imbang attach --mode xdp; its packets end in an XDP program, and so
             do those of its noop, "noop-xdp"; the few that XDP leaves to its
             classifier are socket buffers, and end in a classifier

All are measured in random order in each round, each with a fresh table. Medians
and ranges of the rounds are printed, and ratios round by round.
A competitor that loses packets is marked; its cost is still that per packet sent.
The benchmark checks that packets arrive intact and only at servers, and replies only
at clients.

--against adds other-tc, other-tc-peer and other-xdp: another build of imbang, beside
the competitors of this one, with the ratio to it.

Requires root. Run nothing else on the machine meanwhile.`,
		Example: `  imbang-lab bench flood
  imbang-lab bench flood --competitors plain,imbang-tc --rounds 15
  imbang-lab bench flood --traffic requests,replies,opening --competitors plain,imbang-tc
  imbang-lab bench flood --against old/imbang --competitors plain,imbang-tc,imbang-xdp
  imbang-lab bench flood --schedulers rr,wlc,sh,mh --servers 3,100,1000 --output json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if read != "" {
				r, err := readResult[bench.FloodResult](read, "flood")
				if err != nil {
					return err
				}
				return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printFlood(w, r) })
			}
			if err := checkFlood(config); err != nil {
				return command.Usage(err)
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Flood(c.Context(), config)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printFlood(w, r) })
		},
	}
	out.Register(c, command.One[bench.FloodResult](""))
	c.Flags().StringSliceVar(&config.Competitors, "competitors", bench.FloodCompetitors(), "competitors")
	c.Flags().StringSliceVar(&config.Traffic, "traffic", bench.FloodTraffic(), "kinds of traffic")
	c.Flags().StringVar(&config.Against, "against", "", "`path` of another build's imbang, which takes part beside this one")
	c.Flags().StringSliceVar(&config.Schedulers, "schedulers", []string{"rr"}, "schedulers of the service")
	c.Flags().IntSliceVar(&config.Servers, "servers", []int{3}, "numbers of its real servers")
	c.Flags().IntVar(&config.Flows, "flows", 1<<16, "connections to open; the tables have room for twice as many")
	c.Flags().IntVar(&config.Packets, "packets", 500000, "packets of established connections in a sample")
	c.Flags().IntVar(&config.Rounds, "rounds", 9, "samples of each")
	c.Flags().BoolVar(&config.LoadOnce, "load-once", false, "load imbang once, for machines on which that takes long; between samples its connections end")
	storedFlags(c, &read, &config.Note)
	return c
}

func checkFlood(c bench.FloodConfig) error {
	for _, name := range c.Competitors {
		if known := bench.FloodCompetitors(); !slices.Contains(known, name) {
			return fmt.Errorf("unknown competitor %q (%s)", name, strings.Join(known, ", "))
		}
	}
	for _, name := range c.Traffic {
		if known := bench.FloodTraffic(); !slices.Contains(known, name) {
			return fmt.Errorf("unknown traffic %q (%s)", name, strings.Join(known, ", "))
		}
	}
	for _, name := range c.Schedulers {
		if known := model.SchedulerNames(); !slices.Contains(known, name) {
			return fmt.Errorf("unknown scheduler %q (%s)", name, strings.Join(known, ", "))
		}
	}
	for _, n := range c.Servers {
		if n < 1 || n > 60000 {
			return fmt.Errorf("--servers %d: want 1 to 60000", n)
		}
	}
	if len(c.Competitors) == 0 || len(c.Traffic) == 0 || len(c.Schedulers) == 0 || len(c.Servers) == 0 {
		return errors.New("--competitors, --traffic, --schedulers, --servers: want one or more of each")
	}
	if c.Flows < 2 || c.Flows > 1<<22 || c.Packets < 1 || c.Rounds < 1 {
		return fmt.Errorf("--flows, --packets, --rounds: want 2 to %d, 1 or more, 1 or more", 1<<22)
	}
	return nil
}

func printFlood(w io.Writer, r *bench.FloodResult) error {
	if r.Note != "" {
		fmt.Fprintln(w, r.Note)
	}
	fmt.Fprintf(w, "Linux %s, %s, %d CPUs; frames of %d bytes\n", r.Machine.Kernel, r.Machine.CPU, r.Machine.CPUs, r.FrameBytes)
	if !r.Machine.JIT {
		fmt.Fprintln(w, "BPF programs are interpreted (sysctl -w net.core.bpf_jit_enable=1)")
	}
	printFloodLimits(w, r.Limits)
	fmt.Fprintln(w, "ns of CPU time a packet sent, median (range); own: more than a director that drops it; ratios: of what is more than one that both have in common")
	for i, c := range r.Costs {
		if i == 0 || c.Scheduler != r.Costs[i-1].Scheduler || c.Servers != r.Costs[i-1].Servers {
			fmt.Fprintf(w, "\n%s, %d servers\n%-8s %-18s %24s %24s\n", c.Scheduler, c.Servers, "flows", "", "whole", "own")
		}
		printFloodCost(w, c)
	}
	for _, m := range r.Missing {
		fmt.Fprintln(w, m)
	}
	fmt.Fprintf(w, "\na fixed loop beside them: %.1f ms (%.1f to %.1f)\n", r.Calibration.Median/1e6, r.Calibration.Min/1e6, r.Calibration.Max/1e6)
	return printTargets(w, r.Targets)
}

func printFloodLimits(w io.Writer, l bench.FloodLimits) {
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"imbang --max-connections", l.Imbang}, {"nf_conntrack_max", l.ConntrackMax},
		{"nf_conntrack_buckets", l.ConntrackBuckets}, {"ip_vs conn_tab_bits", l.IPVSTableBits},
	} {
		if limit.value > 0 {
			fmt.Fprintf(w, "%s=%d ", limit.name, limit.value)
		}
	}
	fmt.Fprintln(w)
}

func printFloodCost(w io.Writer, c bench.FloodCost) {
	fmt.Fprintf(w, "%-8s %-18s %24s %24s", c.Traffic, c.Competitor, costText(c.NS), costText(c.Own))
	others := bench.FloodCompetitors()
	for _, other := range slices.Sorted(maps.Keys(c.Over)) {
		if !slices.Contains(others, other) {
			others = append(others, other) // another build
		}
	}
	for _, other := range others {
		if over, ok := c.Over[other]; ok {
			fmt.Fprintf(w, "  /%s %.2f (%.2f to %.2f)", other, over.Median, over.Min, over.Max)
		}
	}
	if c.Arrived != c.Sent {
		fmt.Fprintf(w, "  LOST %d of %d", c.Sent-c.Arrived, c.Sent)
	}
	fmt.Fprintln(w)
}
