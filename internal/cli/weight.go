// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

func newWeightCommand() *cobra.Command {
	var out command.OutputFlag
	var which selector
	var set int32
	var health, reason, backend string
	c := &cobra.Command{
		Use:   "weight [SERVICE [-r SERVER [--set N | --health up|down|N%]]]",
		Short: "Show or set servers' weights and health",
		Long: `Without --set and --health, lists the weights of the servers of all services, of
one service, or of one server. SERVICE is -t, -u or --sctp-service ADDRESS:PORT,
or -f MARK. A server has

  administrative weight   what the user set: imbang weight --set, ipvsadm -w.
                          ipvsadm -S saves it
  health                  what health checks found: up, down, or the share of
                          the administrative weight that they leave
  effective weight        what the scheduler goes by; ipvsadm -L shows it. It is
                          the share of the administrative weight that the health
                          leaves, rounded down and at least 1; 0 if the server
                          is down or its administrative weight is 0

--set changes the administrative weight, --health the health, and neither
changes anything else of the server: not its thresholds, forwarding method,
counters or connections, nor its place in the list. Schedulers follow at once.

A server with effective weight 0 is quiescent: it keeps its connections and gets
no new ones, as with ipvsadm -e ... -w 0 (imbang settings drain_timeout= limits
the time). ipvsadm -e leaves the health as it is: a server that is down stays
down. A server is up when it is added, also by ipvsadm -R.

With a daemon (imbang run) whose configuration names the server, --set is an order:
it holds over reloads and restarts until imbang enable ends it, also if it is given
while the daemon is down. Health is then the daemon's, which sets it again.

A server of a backend of layer 7 is named by --backend-server: of that, --set is always an
order, and the weights are in imbang status.

Both values are the director's, in the kernel: they stay when commands end, and
over imbang upgrade and imbang detach --keep-table.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: there is no
director, service or server of that name, or no permission. Then nothing was
changed.`,
		Example: `  imbang weight
  imbang weight -t 10.20.0.1:80 --output json
  imbang weight -t 10.20.0.1:80 -r 172.16.0.2:80 --set 5
  imbang weight -t 10.20.0.1:80 -r 172.16.0.2:80 --health down
  imbang weight -f 3 -r 172.16.0.2 --health 50%
  imbang weight --backend-server web/web1 --set 5`,
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
			sets, checks := c.Flags().Changed("set"), c.Flags().Changed("health")
			switch {
			case backend != "" && (w.key != nil || w.addr != nil || !sets || checks):
				return command.Usage(errors.New("--backend-server names a server by itself, for --set: remove what else names one, or --health"))
			case backend != "" && set < 0:
				return command.Usage(fmt.Errorf("--set %d: want a weight of 0 or more", set))
			case backend != "":
				return orderBackendWeight(c.Context(), backend, set, reason)
			case sets && checks:
				return command.Usage(errors.New("--set and --health are two edits: run imbang weight once for each"))
			case (sets || checks) && w.addr == nil:
				return command.Usage(errors.New("--set and --health require a service and one of its servers (--real-server)"))
			case sets && set < 0:
				return command.Usage(fmt.Errorf("--set %d: want a weight of 0 or more", set))
			case sets:
				if ordered, err := orderWeight(c.Context(), c.ErrOrStderr(), *w.key, *w.addr, set, reason); ordered || err != nil {
					return err
				}
				return onDirector(func(d *director.Director) error { return d.SetWeight(*w.key, *w.addr, set) })
			case checks:
				h, err := model.ParseHealth(health)
				if err != nil {
					return command.Usage(fmt.Errorf("--health %q: want up, down, or a share from 0%% to 100%%", health))
				}
				return onDirector(func(d *director.Director) error { return d.SetHealth(*w.key, *w.addr, h) })
			}
			return listWeights(c.OutOrStdout(), out, w)
		},
	}
	which.register(c)
	c.Flags().Int32Var(&set, "set", 0, "set the administrative weight to `N`")
	c.Flags().StringVar(&health, "health", "", "set the health: up, down, or the `SHARE` of the weight that is left, as 50% or 12.5%")
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` for the daemon's status and log, with --set")
	c.Flags().StringVar(&backend, "backend-server", "", "with --set: a server of layer 7, as `BACKEND/SERVER`")
	_ = c.RegisterFlagCompletionFunc("backend-server", completeDaemon(func(s api.Service) (names []string) {
		for _, one := range s.Servers {
			if s.Key == s.Name { // a backend
				names = append(names, shortName(s)+"/"+one.Name)
			}
		}
		return names
	}))
	_ = c.RegisterFlagCompletionFunc("set", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("health", cobra.FixedCompletions([]string{"up", "down"}, cobra.ShellCompDirectiveNoFileComp))
	out.Register(c, command.One[[]serverWeight](""))
	return c
}

// onDirector edits the director of this network namespace.
func onDirector(edit func(*director.Director) error) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	return named(edit(d))
}

// serverWeight is a server in the listing.
type serverWeight struct {
	Service        string  `json:"service"`
	Server         string  `json:"server"`
	Administrative int32   `json:"administrative"`
	Health         string  `json:"health"`
	Draining       bool    `json:"draining"`       // no new connections: imbang drain
	HealthPercent  float64 `json:"health_percent"` // share of the administrative weight
	Effective      int32   `json:"effective"`
}

func listWeights(to io.Writer, out command.OutputFlag, w selected) error {
	services, err := w.list()
	if err != nil {
		return err
	}
	all := []serverWeight{}
	for _, s := range services {
		for _, m := range s.Servers {
			all = append(all, serverWeight{s.Key.String(), endpointText(m.Addr, m.Port), m.Weight, m.Health.String(), m.Draining, m.Health.Percent(), m.EffectiveWeight()})
		}
	}
	return out.Print(to, all, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "SERVICE\tSERVER\tADMINISTRATIVE\tHEALTH\tEFFECTIVE\n")
		for _, m := range all {
			health := m.Health
			if m.Draining {
				health += ", draining"
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\n", m.Service, m.Server, m.Administrative, health, m.Effective)
		}
		return t.Flush()
	})
}
