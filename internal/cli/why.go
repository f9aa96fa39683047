// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

func newWhyCommand() *cobra.Command {
	var out command.OutputFlag
	var tcp, udp, sctp bool
	var mark uint32
	var request api.WhyRequest
	c := &cobra.Command{
		Use:   "why CLIENT:PORT ADDRESS:PORT | why --url URL",
		Short: "Show where a connection's packets or a request go, and why",
		Long: `Shows the director's entry of the connection from CLIENT:PORT to the virtual
ADDRESS:PORT. Without an entry, it shows how a first packet would be handled now:
the service, the template or the scheduler's choice and the runner-up, or the
reason why it is not forwarded. The data plane's own programs decide, without
side effects: no connection is created, and no counter or scheduler changes.

With --url, shows what becomes of a request of HTTP: the director's service and the node
that it chooses, if a director is loaded and --client and an address are given; then, by
the daemon of this node, the listener, the routes that were tried, the backend and its
servers. Names are not resolved: --address says where the client connects to, if the URL
has no address and several listeners have its port. Which server of a backend gets the
request is HAProxy's choice, by the method that is shown.

The exit status is 1 if packets are not forwarded.`,
		Example: `  imbang why 10.10.0.2:1234 10.20.0.1:80
  imbang why --url https://shop.example/cart --client 10.1.2.3
  imbang why --udp [2001:db8::2]:5353 [2001:db8::1]:53`,
		Args: func(c *cobra.Command, args []string) error {
			if request.URL != "" {
				return cobra.NoArgs(c, args)
			}
			return cobra.ExactArgs(2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if request.URL != "" {
				return whyRequest(c, out, request)
			}
			q, err := parseQuestion(args)
			if err != nil {
				return err
			}
			q.Mark = mark
			if q.Protocol, err = oneProtocol(tcp, udp, sctp); err != nil {
				return err
			}
			return why(c.OutOrStdout(), out, q)
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return completeVirtual(c, args, word)
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().BoolVar(&tcp, "tcp", false, "a TCP connection (the default)")
	c.Flags().BoolVar(&udp, "udp", false, "UDP datagrams")
	c.Flags().BoolVar(&sctp, "sctp", false, "an SCTP association")
	c.Flags().Uint32Var(&mark, "mark", 0, "firewall mark of the packet")
	_ = c.RegisterFlagCompletionFunc("mark", cobra.NoFileCompletions)
	c.Flags().StringVar(&request.URL, "url", "", "a request of HTTP for this `URL`")
	c.Flags().StringVar(&request.Client, "client", "", "with --url: the client's `ADDRESS`, with or without a port")
	c.Flags().StringVar(&request.Address, "address", "", "with --url: the `ADDRESS` that the client connects to, with or without a port")
	c.Flags().StringVar(&request.Method, "method", "", "with --url: `METHOD` of the request; default GET")
	c.Flags().StringArrayVar(&request.Headers, "header", nil, "with --url: a `HEADER` of the request, such as \"X-Version: 2\"; may be repeated")
	for _, name := range []string{"url", "client", "address", "method", "header"} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	out.Register(c, command.One[director.Explanation]("without --url"), command.One[explainedRequest]("with --url"))
	return c
}

func oneProtocol(tcp, udp, sctp bool) (model.Protocol, error) {
	switch {
	case tcp && (udp || sctp) || udp && sctp:
		return 0, command.Usage(errors.New("a connection is of --tcp, --udp or --sctp, one of them"))
	case udp:
		return model.UDP, nil
	case sctp:
		return model.SCTP, nil
	}
	return model.TCP, nil
}

// completeVirtual offers the services that have an address.
func completeVirtual(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(func(s model.ServiceStatus) []string {
		if s.Key.Mark != 0 || s.Key.Port == 0 {
			return nil
		}
		return []string{netip.AddrPortFrom(s.Key.Addr, s.Key.Port).String()}
	})
}

func parseQuestion(args []string) (q director.Question, err error) {
	if q.Client, err = netip.ParseAddrPort(args[0]); err != nil {
		return q, command.Usage(fmt.Errorf("%q is not a client's address and port such as 10.10.0.2:1234", args[0]))
	}
	if q.Virtual, err = netip.ParseAddrPort(args[1]); err != nil {
		return q, command.Usage(fmt.Errorf("%q is not a virtual address and port such as 10.20.0.1:80", args[1]))
	}
	if q.Client.Addr().Is4() != q.Virtual.Addr().Is4() {
		return q, command.Usage(errors.New("the client's address and the virtual one are not of one family"))
	}
	return q, nil
}

func why(w io.Writer, out command.OutputFlag, q director.Question) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	a, err := d.Explain(q)
	if err != nil {
		return err
	}
	if err := out.Print(w, a, func(w io.Writer) error { return printExplanation(w, &a) }); err != nil {
		return err
	}
	if a.Packet.Verdict != "forwarded" {
		return command.ErrNotAsExpected
	}
	return nil
}

func printExplanation(w io.Writer, a *director.Explanation) error {
	fmt.Fprintf(w, "%s > %s/%s: %s\n", a.Client, a.Virtual, a.Protocol, summary(a))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if c := a.Connection; c != nil {
		fmt.Fprintf(t, "  state\t%s, ends in %s if no packet comes\n", c.State, short(c.Expires))
		fmt.Fprintf(t, "  server\t%s\n", heldBy(c))
	}
	if a.Packet.Service != "" {
		fmt.Fprintf(t, "  service\t%s\n", serviceStory(&a.Packet))
	}
	if m := a.Template; m != nil {
		fmt.Fprintf(t, "  template\tof %s, ends in %s, controls %s\n", m.Clients, short(m.Expires), count(m.Connections, "connection"))
	}
	if story := forecast(a); story != "" {
		fmt.Fprintf(t, "  choice\t%s\n", story)
	}
	for _, note := range takeoverNotes(a) {
		fmt.Fprintf(t, "  note\t%s\n", note)
	}
	for _, side := range a.Gone {
		fmt.Fprintf(t, "  note\tthe %ss' device is gone that the director was attached to: imbang doctor has the remedy\n", side)
	}
	if !a.Attached && len(a.Gone) == 0 {
		fmt.Fprintf(t, "  note\tthe director is attached to no device: no packet reaches it\n")
	}
	return t.Flush()
}

// takeoverNotes say what becomes of other packets of a connection that is not known.
func takeoverNotes(a *director.Explanation) (notes []string) {
	if a.Known {
		return nil
	}
	const which = "packets of unknown connections that open none, and servers' replies without a connection,"
	if a.Handed > 0 {
		notes = append(notes, fmt.Sprintf("after a planned move, for another %s: %s are handed over to the former master", short(a.Handed), which))
	}
	if a.Grace > 0 {
		notes = append(notes, fmt.Sprintf("after a takeover, for another %s: %s are dropped", short(a.Grace), which))
	}
	return notes
}

// summary is the answer in a few words.
func summary(a *director.Explanation) string {
	trouble := ""
	if a.Packet.Reason != "" {
		trouble = fmt.Sprintf("%s: %s", verdictWords[a.Packet.Verdict], a.Packet.Reason)
	}
	switch {
	case a.Known && trouble == "":
		return "connected"
	case a.Known:
		return "connected, but its packets are " + trouble
	}
	state, another := "not connected", "a connection"
	if a.Connection != nil {
		state, another = "connected, but that is over", "another"
	}
	if trouble == "" {
		return fmt.Sprintf("%s; a first packet now would open %s", state, another)
	}
	return fmt.Sprintf("%s; a first packet now would be %s", state, trouble)
}

// heldBy is a connection's server, at the port that it has in the connection.
func heldBy(c *director.Held) string {
	if c.Server == nil {
		return "unknown"
	}
	server := *c.Server
	server.Addr = netip.AddrPortFrom(server.Addr.Addr(), c.Port)
	return fmt.Sprintf("%s by %s", describe(&server), c.Forward)
}

// foundByText say how a service was found.
var foundByText = map[director.FoundBy]string{
	director.ByMark:     "by its firewall mark",
	director.ByAddress:  "by address and port",
	director.ByFTP:      "as other ports of an FTP service",
	director.ByAnyPorts: "as a service of every port",
}

func serviceStory(e *director.Event) string {
	story := fmt.Sprintf("%s, found %s", e.Service, foundByText[e.FoundBy])
	if e.Scheduler != "" {
		story += fmt.Sprintf("; scheduler %s, %s", e.Scheduler, count(e.Servers, "server"))
	}
	return story
}

// forecast is what would decide about a first packet.
func forecast(a *director.Explanation) string {
	e := &a.Packet
	if a.Known || e.By == "" {
		return ""
	}
	if e.Server == nil {
		return noneStory(e)
	}
	return choiceStory(e, "would choose")
}

// count is a number of things.
func count(n uint32, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// short is a time as people say it.
func short(s director.Seconds) string {
	d := time.Duration(s)
	if d > 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
