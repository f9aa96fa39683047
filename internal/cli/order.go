// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/place"
)

// orderFlags are those of all orders.
func orderFlags(c *cobra.Command, q *api.OrderRequest, out *command.OutputFlag) {
	c.Flags().StringVar(&q.Service, "service", "", "of this `SERVICE` or backend alone, by name or address; default every one that has the server")
	c.Flags().StringVar(&q.Reason, "reason", "", "`TEXT` for imbang status and the log")
	_ = c.RegisterFlagCompletionFunc("service", completeDaemon(func(s api.Service) []string { return []string{shortName(s)} }))
	_ = c.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	c.ValidArgsFunction = completeDaemon(func(s api.Service) (names []string) {
		for _, one := range s.Servers {
			names = append(names, one.Name)
		}
		return names
	})
	out.Register(c, command.One[api.OrderReply](""))
}

// shortName is a service's name, or a backend's without the word backend, which would have to be
// quoted.
func shortName(s api.Service) string { return strings.TrimPrefix(s.Name, "backend ") }

// completeDaemon offers words of the services that the daemon has.
func completeDaemon(words func(api.Service) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d, err := api.NewClient()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := d.Status(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []string
		for _, one := range s.All() {
			all = append(all, words(one)...)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func newDrainCommand() *cobra.Command {
	var out command.OutputFlag
	q := api.OrderRequest{Action: api.ActionDrain}
	var deadline time.Duration
	var wait bool
	c := &cobra.Command{
		Use:   "drain SERVER",
		Short: "Stop new connections to a server; existing ones continue",
		Long: `Gives a server, by name or address, no new connections: not by its scheduler, not
to persistent clients, and not to clients that use a port again. Existing
connections continue. imbang enable SERVER ends that.

With --deadline, the next packet of a TCP connection that remains after that time,
from the client or from the server, is answered with a reset to its sender, and
datagrams of known clients go to another server. Idle connections stay in the
listing (imbang conns --server ADDRESS) until they send something or expire.

With a daemon (imbang run) the order survives reloads, restarts of the daemon and
of the machine. An order that is given while the daemon is down survives its next
start; SERVER is then an address. If no daemon's configuration names the server, the
order is the table's alone, and ends when the server is deleted.

With --wait the command shows the active connections that remain, and ends when
there are none; inactive ones are closing or closed. It can outlast the deadline while
idle connections remain. Ctrl-C ends the waiting; the order stays.

Requires root, or with a daemon membership of group imbang. The exit status is 0, 2
for a wrong command line, or 3 if it failed; then nothing is ordered.`,
		Example: `  imbang drain web1 --reason "new disk" --wait
  imbang drain 172.16.0.2:80 --service shop --deadline 10m`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q.Server = args[0]
			if c.Flags().Changed("deadline") {
				if deadline < 0 {
					return command.Usage(fmt.Errorf("--deadline %s: want a time above 0, or 0 for never", deadline))
				}
				seconds := deadline.Seconds()
				q.Deadline = &seconds
			}
			reply, err := giveOrder(c, out, q, "draining")
			if err != nil || !wait {
				return err
			}
			return waitDrained(c.Context(), c.ErrOrStderr(), reply)
		},
	}
	c.Flags().DurationVar(&deadline, "deadline", 0, "reset connections that remain after this `TIME`; 0: never; default the service's drain_deadline")
	c.Flags().BoolVar(&wait, "wait", false, "end when the server has no active connections")
	orderFlags(c, &q, &out)
	return c
}

func newEnableCommand() *cobra.Command {
	var out command.OutputFlag
	q := api.OrderRequest{Action: api.ActionEnable}
	c := &cobra.Command{
		Use:   "enable SERVER",
		Short: "End all orders of a server: draining, maintenance, a weight",
		Long: `Ends what was ordered of a server by imbang drain, imbang maintenance and imbang
weight --set: it has its configured weight and its checks again. While the daemon is
down, SERVER is an address.

Requires root or membership of group imbang. The exit status is 0, 2 for a wrong
command line, or 3 if it failed; then everything is as it was.`,
		Example: `  imbang enable web1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q.Server = args[0]
			_, err := giveOrder(c, out, q, "enabled")
			return err
		},
	}
	orderFlags(c, &q, &out)
	return c
}

func newMaintenanceCommand() *cobra.Command {
	var out command.OutputFlag
	var q api.OrderRequest
	c := &cobra.Command{
		Use:   "maintenance on|off SERVER",
		Short: "Take a server out of service, without checks and alarms",
		Long: `Orders the daemon (imbang run) to give a server no new connections and to stop its
checks: what becomes of it meanwhile causes no events. off ends that, as imbang
enable does. The order survives reloads, restarts of the daemon and of the
machine.

Requires root or membership of group imbang. The exit status is 0, 2 for a wrong
command line, or 3 if it failed; then everything is as it was.`,
		Example: `  imbang maintenance on web1 --reason "kernel upgrade"
  imbang maintenance off web1`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			q.Server = args[1]
			words := map[string]string{"on": api.ActionMaintenance, "off": api.ActionEnable}
			if q.Action = words[args[0]]; q.Action == "" {
				return command.Usage(fmt.Errorf("%q: want on or off before the server: imbang maintenance on|off SERVER", args[0]))
			}
			_, err := giveOrder(c, out, q, map[string]string{"on": "in maintenance", "off": "enabled"}[args[0]])
			return err
		},
	}
	orderFlags(c, &q, &out)
	servers := c.ValidArgsFunction
	c.ValidArgsFunction = func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp
		}
		return servers(c, args, text)
	}
	return c
}

// giveOrder gives an order, and says which servers it is about.
func giveOrder(c *cobra.Command, out command.OutputFlag, q api.OrderRequest, done string) (*api.OrderReply, error) {
	if err := out.Check(); err != nil {
		return nil, err
	}
	d, err := api.NewClient()
	if err != nil {
		return nil, err
	}
	reply, err := order(c.Context(), d, q)
	if err != nil {
		return nil, err
	}
	return reply, out.Print(c.OutOrStdout(), reply, func(w io.Writer) error {
		for _, s := range reply.Servers {
			what := "service " + s.Service
			if s.Service == s.Key { // a backend
				what = s.Service
			}
			fmt.Fprintf(w, "%s: server %s is %s\n", what, s.Server, done)
		}
		for _, s := range reply.Streams {
			fmt.Fprintf(w, "  %s still has %s, for %s\n", s.Server, s.Client, s.Age)
		}
		warn(c.ErrOrStderr(), reply.Warnings)
		return nil
	})
}

func warn(w io.Writer, warnings []string) {
	for _, one := range warnings {
		fmt.Fprintf(w, "imbang: warning: %s\n", one)
	}
}

// startingPatience is how long a daemon may take that is being started: it loads the data plane.
const startingPatience = 10 * time.Second

// order gives an order to the daemon, or carries it out if none runs.
func order(ctx context.Context, d *api.Client, q api.OrderRequest) (*api.OrderReply, error) {
	for end := time.Now().Add(startingPatience); ; {
		reply, err := d.Order(ctx, q)
		if !errors.Is(err, api.ErrNoDaemon) || q.Action == api.ActionMaintenance {
			return reply, err
		}
		reply, err = daemon.OrderAlone(q)
		if !errors.Is(err, place.ErrRunning) || time.Now().After(end) {
			return reply, norDaemon(named(err))
		}
	}
}

// statusAlone is the connections of all servers, without a daemon.
func statusAlone() (*api.Status, error) {
	all, err := services()
	if err != nil {
		return nil, err
	}
	s := &api.Status{}
	for _, service := range all {
		out := api.Service{Key: service.Key.String()}
		for _, one := range service.Servers {
			out.Servers = append(out.Servers, api.Server{Address: one.AddrPort().String(), Active: one.Active, Inactive: one.Inactive})
		}
		s.Services = append(s.Services, out)
	}
	return s, nil
}

// waitDrained shows the active connections that remain until there are none. Inactive
// ones are closing: Linux keeps them for up to two minutes after the last packet.
func waitDrained(ctx context.Context, w io.Writer, reply *api.OrderReply) error {
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := ^uint64(0)
	for {
		s, err := d.Status(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, api.ErrNoDaemon) {
			s, err = statusAlone()
		}
		if err != nil {
			return err
		}
		active, inactive := remaining(s, reply)
		if active == 0 {
			fmt.Fprintf(w, "no active connections remain; %d are closing\n", inactive)
			return nil
		}
		if active != last {
			fmt.Fprintf(w, "%d active connections remain\n", active)
			last = active
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// remaining counts the connections of servers.
func remaining(s *api.Status, reply *api.OrderReply) (active, inactive uint64) {
	for _, service := range s.All() {
		for _, server := range service.Servers {
			for _, t := range reply.Servers {
				if t.Key == service.Key && t.Address == server.Address {
					active += uint64(server.Active)
					inactive += uint64(server.Inactive)
				}
			}
		}
	}
	return active, inactive
}
