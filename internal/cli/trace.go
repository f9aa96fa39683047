// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
	"imbang/internal/model"
)

func newTraceCommand() *cobra.Command {
	var out command.OutputFlag
	var w wanted
	c := &cobra.Command{
		Use:   "trace",
		Short: "Show live how packets are handled, and why",
		Long: `Prints a line for each new connection, with the reason for its server, and for
each packet that was refused, dropped or passed to the stack, with the reason,
until Ctrl-C. Packets of established connections are not shown. Packets that are
passed to the stack and belong to no virtual service are shown only with --reason.

A scheduler's choice is shown with the figures of the chosen server and of the
runner-up. Up to eight commands may trace at once. Tracing costs some
microseconds for a new connection and nothing for established ones. It ends with
the command, or five seconds after the command is killed.`,
		Example: `  imbang trace --client 10.10.0.0/16
  imbang trace --service 10.20.0.1:80 --new
  imbang trace --reason drop --reason no-server
  imbang trace --service fwmark:3 --verbose --output json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			filter, err := w.filter()
			if err != nil {
				return err
			}
			begun := func() { fmt.Fprintln(c.ErrOrStderr(), "imbang: tracing, until Ctrl-C") }
			return trace(c.Context(), filter, begun, teller{w: c.OutOrStdout(), json: out.Format == "json", verbose: w.verbose})
		},
	}
	w.register(c)
	out.Register(c, command.Lines[director.Event]("each event"), command.Lines[lostEvents]("if events were lost"))
	return c
}

// wanted are the flags of a filter.
type wanted struct {
	client, service, server string
	reasons                 []string
	new, verbose            bool
}

func (w *wanted) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.client, "client", "", "only of clients of this address or prefix")
	f.StringVar(&w.service, "service", "", "only of this service: ADDRESS, ADDRESS:PORT or fwmark:MARK")
	f.StringVar(&w.server, "server", "", "only of connections to this real server's address")
	f.StringSliceVar(&w.reasons, "reason", nil, "only what was not forwarded for this reason, or with this verdict (pass, refused, drop)")
	f.BoolVar(&w.new, "new", false, "only new connections (with --reason: these, too)")
	f.BoolVarP(&w.verbose, "verbose", "v", false, "also show changes of TCP and SCTP states; lines have the device and the length")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"client": cobra.NoFileCompletions, "service": completeServices, "server": completeServers,
		"reason": completeReasons,
	} {
		_ = c.RegisterFlagCompletionFunc(flag, complete)
	}
}

func (w *wanted) filter() (f director.Filter, err error) {
	f = director.Filter{Reasons: w.reasons, New: w.new, States: w.verbose}
	for _, name := range w.reasons {
		if err := director.CheckReason(name); err != nil {
			return f, command.Usage(err)
		}
	}
	if w.client != "" {
		if f.Client, err = parsePrefix(w.client); err != nil {
			return f, err
		}
	}
	if w.server != "" {
		if f.Server, err = netip.ParseAddr(w.server); err != nil {
			return f, command.Usage(fmt.Errorf("%q is not a server's address", w.server))
		}
	}
	if w.service != "" {
		err = parseServiceFilter(w.service, &f)
	}
	return f, err
}

// parsePrefix reads an address or a prefix.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, command.Usage(fmt.Errorf("%q is not an address or prefix such as 10.20.0.32/27", s))
	}
	return p, nil
}

// markWord begins the name of a fwmark service.
const markWord = "fwmark:"

func parseServiceFilter(s string, f *director.Filter) error {
	if number, is := strings.CutPrefix(s, markWord); is {
		var err error
		f.Mark, err = parseMark(number)
		return err
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		f.Virtual = netip.AddrPortFrom(addr, 0)
		return nil
	}
	var err error
	if f.Virtual, err = netip.ParseAddrPort(s); err != nil {
		return command.Usage(fmt.Errorf("%q is not a service such as 10.20.0.1:80, [2001:db8::1]:80 or fwmark:3", s))
	}
	return nil
}

// trace tells until the context ends.
func trace(ctx context.Context, f director.Filter, begun func(), tell teller) (err error) {
	t, err := director.Trace(f)
	if err != nil {
		return err
	}
	begun()
	defer func() {
		if closing := t.Close(); err == nil {
			err = closing
		}
	}()
	err = t.Each(ctx, func(e *director.Event) error {
		lost, err := t.Lost()
		if err != nil {
			return err
		}
		return tell.tell(e, lost)
	})
	if err != nil {
		return err
	}
	lost, err := t.Lost()
	if err != nil {
		return err
	}
	return tell.tell(nil, lost)
}

// teller writes events, a line each.
type teller struct {
	w             io.Writer
	json, verbose bool
}

// tell writes an event, if there is one, behind how many were lost.
func (t teller) tell(e *director.Event, lost uint64) error {
	if lost > 0 {
		if err := t.tellLost(lost); err != nil {
			return err
		}
	}
	if e == nil {
		return nil
	}
	if t.json {
		return json.NewEncoder(t.w).Encode(e)
	}
	_, err := fmt.Fprintln(t.w, eventLine(e, t.verbose))
	return err
}

// lostEvents stands in JSON where events are missing.
type lostEvents struct {
	Lost uint64 `json:"lost"`
}

func (t teller) tellLost(n uint64) error {
	if t.json {
		return json.NewEncoder(t.w).Encode(lostEvents{n})
	}
	_, err := fmt.Fprintf(t.w, "%d events are lost here: they came faster than they were read (a filter helps)\n", n)
	return err
}

func completeReasons(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return director.ReasonNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeServices offers the services there are.
func completeServices(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(func(s model.ServiceStatus) []string {
		if s.Key.Mark != 0 {
			return []string{markWord + strconv.FormatUint(uint64(s.Key.Mark), 10)}
		}
		if s.Key.Port == 0 {
			return []string{s.Key.Addr.String()}
		}
		return []string{netip.AddrPortFrom(s.Key.Addr, s.Key.Port).String()}
	})
}

// completeServers offers the addresses of the real servers.
func completeServers(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(func(s model.ServiceStatus) (servers []string) {
		for _, server := range s.Servers {
			servers = append(servers, server.Addr.String())
		}
		return servers
	})
}

// completions offers something of each service, once. Without a director, or
// without the right to look, there is nothing to offer.
func completions(of func(model.ServiceStatus) []string) ([]string, cobra.ShellCompDirective) {
	list, err := services()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all []string
	seen := map[string]bool{}
	for _, s := range list {
		for _, word := range of(s) {
			if !seen[word] {
				all = append(all, word)
			}
			seen[word] = true
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
