// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/model"
)

func newStatsCommand() *cobra.Command {
	var out command.OutputFlag
	var which selector
	c := &cobra.Command{
		Use:   "stats [SERVICE [-r SERVER]]",
		Short: "Show what services and servers counted since they were added",
		Long: `Lists the counters of all services and their servers, of one service, or of one
server, since the service or server was added. SERVICE is -t, -u or
--sctp-service ADDRESS:PORT, or -f MARK.

They are counters for monitoring, as Prometheus requires them: they never
decrease while the service or server exists. ipvsadm -Z does not change them;
ipvsadm -L --stats shows the same counters since the last -Z. They begin with 0
when a service is added, also after it was deleted, and for a new server. A
server that is deleted and added again to the same service goes on counting while
it still has connections, as in Linux, or while no other server got its id.

  conns                    connections
  in_packets, in_bytes     from clients to servers
  out_packets, out_bytes   from servers to clients; none with direct routing and
                           tunnels, where replies do not pass the director

Bytes are those of IP packets as on the wire. imbang upgrade keeps the counters;
from a build that did not have them, they begin with what ipvsadm -L --stats
showed. imbang detach without --keep-table, and the machine's restart, end them.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: there is no
director, service or server of that name, or no permission.`,
		Example: `  imbang stats
  imbang stats -t 10.20.0.1:80 --output json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			w, err := which.understand()
			if err != nil {
				return err
			}
			return listTotals(c.OutOrStdout(), out, w)
		},
	}
	which.register(c)
	out.Register(c, command.One[[]serviceTotals](""))
	return c
}

// totals are the counters of a service or server in the listing.
type totals struct {
	Conns      uint64 `json:"conns"`
	InPackets  uint64 `json:"in_packets"`
	OutPackets uint64 `json:"out_packets"`
	InBytes    uint64 `json:"in_bytes"`
	OutBytes   uint64 `json:"out_bytes"`
}

func totalsOf(s model.Stats) totals {
	return totals{s.Conns, s.InPkts, s.OutPkts, s.InBytes, s.OutBytes}
}

func (t totals) row(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", name, t.Conns, t.InPackets, t.OutPackets, t.InBytes, t.OutBytes)
}

type serverTotals struct {
	Server string `json:"server"`
	totals
}

type serviceTotals struct {
	Service string `json:"service"`
	totals
	Servers []serverTotals `json:"servers"`
}

func listTotals(to io.Writer, out command.OutputFlag, w selected) error {
	services, err := w.list()
	if err != nil {
		return err
	}
	all := []serviceTotals{}
	for _, s := range services {
		one := serviceTotals{s.Key.String(), totalsOf(s.Total), []serverTotals{}}
		for _, m := range s.Servers {
			one.Servers = append(one.Servers, serverTotals{endpointText(m.Addr, m.Port), totalsOf(m.Total)})
		}
		all = append(all, one)
	}
	return out.Print(to, all, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "SERVICE -> SERVER\tCONNS\tIN-PACKETS\tOUT-PACKETS\tIN-BYTES\tOUT-BYTES\n")
		for _, s := range all {
			s.row(t, s.Service)
			for _, m := range s.Servers {
				m.row(t, "  -> "+m.Server)
			}
		}
		return t.Flush()
	})
}
