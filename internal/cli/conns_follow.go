// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
	"imbang/internal/model"
)

// followHelp is the part of the help that --follow is responsible for.
const followHelp = `With --follow, prints a line (with -o json an object on a line) for each connection
that opens, changes its state or ends, from now on until Ctrl-C. --service, --kind and
--protocol select events in the kernel; an event that is not selected costs no room.

An event has the time, what happened, and the connection as it was then: client, virtual
address, server, state, and after how many seconds without a packet it expires. Events
of a connection are in order: its end is the last one, and comes before the opening of
the next connection with the same ports. If packets of a connection are handled by two
CPUs at the same time, a change of state may come before the opening.

Datagrams of services with one-packet scheduling (ipvsadm --ops) have no entry in the
connection table and are not reported. --templates adds the entries of persistence.

Events wait for the command in a ring of 4 MiB, which holds about 30000. Events that
find it full are lost; a line says how many, behind the last event that is older. Packets
are never delayed. The fast path stays on. Following costs each event about a
microsecond. It ends with the command, and at most five seconds later if that is killed.
Up to four commands may follow at once.`

// followWanted are the flags of a rule.
type followWanted struct {
	service, protocol string
	kinds             []string
	templates         bool
}

func (w *followWanted) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.service, "service", "", "only of this service: ADDRESS, ADDRESS:PORT or fwmark:MARK")
	f.StringVar(&w.protocol, "protocol", "", "only of this protocol: tcp, udp or sctp")
	f.StringSliceVar(&w.kinds, "kind", nil, "with --follow: only these events: open, state, close")
	f.BoolVar(&w.templates, "templates", false, "with --follow: persistence templates, too")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"service":  completeServices,
		"protocol": cobra.FixedCompletions([]string{"tcp", "udp", "sctp"}, cobra.ShellCompDirectiveNoFileComp),
		"kind":     cobra.FixedCompletions(director.ConnectionKinds(), cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = c.RegisterFlagCompletionFunc(flag, complete)
	}
}

func (w *followWanted) rule() (director.FollowRule, error) {
	r := director.FollowRule{Kinds: w.kinds, Templates: w.templates}
	for _, kind := range w.kinds {
		if err := director.CheckConnectionKind(kind); err != nil {
			return r, command.Usage(err)
		}
	}
	if w.protocol != "" {
		p, known := map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP, "sctp": model.SCTP}[strings.ToLower(w.protocol)]
		if !known {
			return r, command.Usage(fmt.Errorf("unknown protocol %q (tcp, udp or sctp)", w.protocol))
		}
		r.Protocol = p
	}
	if w.service != "" {
		var f director.Filter
		if err := parseServiceFilter(w.service, &f); err != nil {
			return r, err
		}
		r.Virtual, r.Mark = f.Virtual, f.Mark
	}
	return r, nil
}

// runFollow is `imbang conns --follow`.
func runFollow(c *cobra.Command, w followWanted, json bool) error {
	rule, err := w.rule()
	if err != nil {
		return err
	}
	begun := func() { fmt.Fprintln(c.ErrOrStderr(), "imbang: following connections, until Ctrl-C") }
	return followConns(c.Context(), rule, begun, c.OutOrStdout(), json)
}

// followConns prints events until the context ends.
func followConns(ctx context.Context, rule director.FollowRule, begun func(), out io.Writer, asJSON bool) (err error) {
	f, err := director.Follow(rule)
	if err != nil {
		return err
	}
	begun()
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
	}()
	return f.Each(ctx, func(e director.ConnectionEvent) error {
		if asJSON {
			return json.NewEncoder(out).Encode(e)
		}
		_, err := fmt.Fprintln(out, connectionLine(e))
		return err
	})
}

// connectionLine is an event in one line.
func connectionLine(e director.ConnectionEvent) string {
	if e.Kind == director.ConnectionLost {
		return lostLine(e.Lost)
	}
	line := fmt.Sprintf("%s %-5s %s -> %s", e.Time.Format("15:04:05.000"), e.Kind, connectionName(e), e.Server)
	if e.Forward != "" {
		line += " " + e.Forward
	}
	line += " " + e.State
	if e.Was != "" {
		line += " (was " + e.Was + ")"
	}
	if e.Kind != director.ConnectionClose {
		line += fmt.Sprintf(", expires in %.1f s", e.ExpiresIn)
	}
	if e.Template != nil && !e.IsTemplate {
		line += ", by the template of " + templateName(e.Template)
	}
	if e.Over {
		line += ", over already"
	}
	return line
}

// connectionName is whose entry it is.
func connectionName(e director.ConnectionEvent) string {
	switch {
	case e.IsTemplate && e.Template != nil:
		return "template of " + templateName(e.Template) + " of " + e.Service
	case e.IsTemplate:
		return fmt.Sprintf("template of %s of %s", e.Client.Addr(), e.Service)
	}
	name := fmt.Sprintf("%s > %s/%s", e.Client, e.Virtual, e.Protocol)
	if strings.HasPrefix(e.Service, "fwmark") {
		name += " of " + e.Service
	}
	return name
}

func templateName(t *director.ControllingTemplate) string {
	if t.By == "call" {
		return fmt.Sprintf("call #%d", t.Call)
	}
	return t.Network
}

func lostLine(n uint64) string {
	if n == 0 {
		return "an upgrade replaced the connection table: events may be missing here"
	}
	return fmt.Sprintf("%d events are lost here: they came faster than they were read (--service and --kind select)", n)
}
