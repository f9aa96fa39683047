// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/sandbox"
	"imbang/internal/lab/topology"
	"imbang/internal/model"
)

// defaultCluster is the name of a cluster that is given none.
const defaultCluster = "demo"

func newUpCommand() *cobra.Command {
	spec := sandbox.Spec{}
	var family, forwarding string
	c := &cobra.Command{
		Use:   "up",
		Short: "Build a cluster that stays, to try imbang without hardware",
		Long: `Builds clients, a director and real servers in network namespaces of this
machine, attaches imbang to the director, adds a virtual service, and ends. The
cluster stays until "imbang-lab down" removes it or the machine restarts. Each
real server is a web server that replies with its own name.

  imbang-lab up
  imbang-lab exec client curl -s http://10.20.0.1/
  imbang-lab exec director ipvsadm -Ln
  imbang-lab down

With --forwarding dr or tun each server also has a device in the clients'
network, by which it replies to clients without the director.

With --empty the director is neither attached nor has a service: add them
yourself.

If the cluster exists and was built with the same options, up starts those of
its web servers that have ended. What an interrupted up has left is removed
first. Requires root.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			spec.Forwarding = sandbox.Forwarding(forwarding)
			var err error
			if spec.Families, err = familiesNamed(family); err != nil {
				return command.Usage(err)
			}
			if err := spec.Check(); err != nil {
				return command.Usage(err)
			}
			p, err := findPrograms()
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(c.Context())
			defer stop()
			cluster, did, err := sandbox.Up(ctx, spec, sandbox.Programs{Imbang: p.imbang, Lab: p.lab})
			if err != nil {
				return err
			}
			return printUp(c.OutOrStdout(), cluster, did)
		},
	}
	f := c.Flags()
	registerCluster(c, &spec.Name)
	f.IntVar(&spec.Servers, "servers", 3, fmt.Sprintf("real servers, 1 to %d", sandbox.MaxServers))
	f.IntVar(&spec.Clients, "clients", 1, fmt.Sprintf("clients, 1 to %d", sandbox.MaxClients))
	f.StringVar(&forwarding, "forwarding", string(sandbox.NAT), "forwarding method: nat, dr or tun")
	f.StringVar(&family, "family", string(topology.IPv4), "address family: ipv4, ipv6 or both")
	f.StringVar(&spec.Scheduler, "scheduler", "rr", "scheduler of the virtual service")
	f.BoolVar(&spec.Empty, "empty", false, "attach no director and add no service")
	for flag, words := range map[string][]string{
		"forwarding": {"nat", "dr", "tun"}, "family": {"ipv4", "ipv6", "both"}, "scheduler": model.SchedulerNames(),
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

func familiesNamed(word string) ([]topology.Family, error) {
	switch word {
	case "ipv4", "ipv6":
		return []topology.Family{topology.Family(word)}, nil
	case "both":
		return topology.Families, nil
	}
	return nil, fmt.Errorf("--family %q: must be ipv4, ipv6 or both", word)
}

// registerCluster adds the flag --name.
func registerCluster(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "name", defaultCluster, "name of the cluster")
	_ = c.RegisterFlagCompletionFunc("name", completeClusters)
}

func completeClusters(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, _ := sandbox.Names()
	return names, cobra.ShellCompDirectiveNoFileComp
}

// printUp says what was built and what to type next.
func printUp(w io.Writer, c *sandbox.Cluster, did sandbox.Outcome) error {
	name := c.Spec.Name
	if did.Recovered {
		fmt.Fprintf(w, "removed what an interrupted up of cluster %s had left\n", name)
	}
	switch {
	case did.Built:
		fmt.Fprintf(w, "cluster %s is up:\n\n", name)
	case len(did.Restarted) > 0:
		_, err := fmt.Fprintf(w, "cluster %s was up; started again: %s\n", name, strings.Join(did.Restarted, ", "))
		return err
	default:
		fmt.Fprintf(w, "cluster %s was up already; nothing changed:\n\n", name)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, n := range c.Nodes {
		fmt.Fprintf(table, "  %s\t%s\n", n.Name, joinAddresses(n.Addresses))
	}
	fmt.Fprintf(table, "  virtual\t%s\n", joinAddresses(c.Virtual))
	if err := table.Flush(); err != nil {
		return err
	}
	if did.Built && len(c.Commands) > 0 {
		fmt.Fprintf(w, "\nThe director was configured with:\n\n  %s\n", strings.Join(c.Commands, "\n  "))
	}
	option := ""
	if name != defaultCluster {
		option = "--name " + name + " "
	}
	fmt.Fprint(w, "\nNext:\n\n")
	next := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if c.Spec.Empty {
		fmt.Fprintf(next, "  imbang-lab exec %sdirector imbang attach --client-dev %s --server-dev %s\tattach imbang\n", option, topology.ClientDevice, topology.ServerDevice)
		fmt.Fprintf(next, "  imbang-lab exec %sdirector ipvsadm -A -t %s -s rr\tadd a virtual service\n", option, netip.AddrPortFrom(c.Virtual[0], sandbox.Port))
	}
	for _, v := range c.Virtual {
		fmt.Fprintf(next, "  imbang-lab exec %sclient curl -s %s\tmake a request\n", option, url(v))
	}
	fmt.Fprintf(next, "  imbang-lab exec %sdirector ipvsadm -Ln\tlist the virtual service\n", option)
	fmt.Fprintf(next, "  imbang-lab exec %sdirector imbang trace\tshow new connections, live\n", option)
	fmt.Fprintf(next, "  imbang-lab ps\tlist clusters and nodes\n")
	fmt.Fprintf(next, "  imbang-lab down %s\tremove the cluster\n", name)
	return next.Flush()
}

func url(a netip.Addr) string {
	if a.Is6() {
		return "http://[" + a.String() + "]/"
	}
	return "http://" + a.String() + "/"
}

func joinAddresses(list []netip.Addr) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}
