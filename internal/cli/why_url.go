// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

// explainedRequest is what becomes of a request of HTTP, in both layers.
type explainedRequest struct {
	// Director is of the client's connection; absent: no director is loaded, or an address is missing.
	Director *director.Explanation `json:"director,omitempty"`
	// Node is what the daemon of this node says.
	Node *api.WhyReply `json:"node,omitempty"`
	// NodeError is why there is no Node.
	NodeError string `json:"node_error,omitempty"`
}

// clientPort is that of a client whose port is not known.
const clientPort = 32768

func whyRequest(c *cobra.Command, out command.OutputFlag, q api.WhyRequest) error {
	client, err := endpoint("--client", q.Client, clientPort)
	if err != nil {
		return command.Usage(err)
	}
	if client.IsValid() {
		q.Client = client.Addr().String()
	}
	var e explainedRequest
	if virtual := virtualOf(q); client.IsValid() && virtual.IsValid() && client.Addr().Is4() == virtual.Addr().Is4() {
		if e.Director, err = explainConnection(client, virtual); err != nil {
			return err
		}
	}
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	if e.Node, err = d.Why(c.Context(), q); err != nil {
		if e.Director == nil {
			return err
		}
		e.NodeError = err.Error() // a director alone
	}
	return out.Print(c.OutOrStdout(), e, func(w io.Writer) error { return printRequest(w, &e, time.Now()) })
}

// endpoint is an address, with a port in place of one that is not given.
func endpoint(flag, text string, port uint16) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, fmt.Errorf("%s %q: want an address such as 10.1.2.3, or with a port 10.1.2.3:80", flag, text)
	}
	return at, nil
}

// virtualOf is where the client connects to, as far as that is known.
func virtualOf(q api.WhyRequest) netip.AddrPort {
	u, err := url.Parse(q.URL)
	if err != nil {
		return netip.AddrPort{}
	}
	port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if at, err := netip.ParseAddrPort("0.0.0.0:" + p); err == nil {
			port = at.Port()
		}
	}
	at, err := endpoint("--address", cmp.Or(q.Address, u.Hostname()), port)
	if err != nil {
		return netip.AddrPort{}
	}
	return at
}

// explainConnection is nil without a director.
func explainConnection(client, virtual netip.AddrPort) (*director.Explanation, error) {
	d, err := director.Open()
	if errors.Is(err, director.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	e, err := d.Explain(director.Question{Client: client, Virtual: virtual, Protocol: model.TCP})
	return &e, err
}

func printRequest(w io.Writer, e *explainedRequest, now time.Time) error {
	if e.Director != nil {
		if err := printExplanation(w, e.Director); err != nil {
			return err
		}
	}
	n := e.Node
	if n == nil {
		fmt.Fprintf(w, "on this node: %s\n", e.NodeError)
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "listener\t%s at %s\n", n.Listener, n.Address)
	for _, s := range n.Routes {
		if s.Because != "" {
			fmt.Fprintf(t, "  not route\t%s: %s\n", s.Route, s.Because)
		}
	}
	if n.Route != "" {
		fmt.Fprintf(t, "route\t%s\n", n.Route)
	}
	switch {
	case n.Redirect != "":
		fmt.Fprintf(t, "redirect\t%d to %s\n", n.Status, n.Redirect)
	case n.Status != 0:
		fmt.Fprintf(t, "reply\t%d\n", n.Status)
	case n.Backend != "":
		fmt.Fprintf(t, "backend\t%s, by %s\n", n.Backend, n.Balance)
	}
	for _, s := range n.Servers {
		printDaemonServer(t, s, now)
	}
	if n.Note != "" {
		fmt.Fprintf(t, "note\t%s\n", n.Note)
	}
	return t.Flush()
}
