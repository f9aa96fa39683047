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
)

// followHelp is the part of the help that --follow is responsible for.
const followHelp = `With --follow, prints a line (with -o json an object on a line) for each connection
and each template that opens, changes its state or ends, from now on until Ctrl-C. --event,
--service, --protocol, --connections and --templates select events in the kernel; an
event that is not selected costs no room.

An event has the time, what happened, and the connection as it is when the event is
written: client, virtual address, server, state, and after how many seconds without a
packet it expires. The end of a connection is its last event, and comes before the
opening of the next connection with the same ports. If two CPUs handle packets of a
connection at the same time, a change of state may come before the opening, and two
changes may be in either order and both have the later state.

Datagrams of services with one-packet scheduling (ipvsadm --ops) have no entry in the
connection table and are not reported.

Events wait for the command in a ring of 4 MiB, which holds about 30000. Events that
find it full are lost; a line says how many, behind the last event that is older. Packets
are never delayed. The fast path stays on. Following costs time for each event, not for
each packet. It ends with the command, and at most five seconds later if that is killed.
Up to four commands may follow at once.`

// followRule is what the flags say.
func (f *connsFlags) followRule() (r director.FollowRule, err error) {
	filter, err := f.filter()
	if err != nil {
		return r, err
	}
	for _, kind := range f.events {
		if err := director.CheckConnectionKind(kind); err != nil {
			return r, command.Usage(err)
		}
	}
	return director.FollowRule{Kinds: f.events, Virtual: filter.Service, Mark: filter.Mark, Protocol: filter.Protocol, Entries: filter.Kind}, nil
}

// runFollow is `imbang conns --follow`.
func (f *connsFlags) runFollow(c *cobra.Command) error {
	for _, other := range []string{"server", "client", "state", "count", "import"} {
		if c.Flags().Changed(other) {
			return command.Usage(fmt.Errorf("--%s is not for --follow, which selects by --service, --protocol, --event, --connections and --templates", other))
		}
	}
	rule, err := f.followRule()
	if err != nil {
		return err
	}
	begun := func() { fmt.Fprintln(c.ErrOrStderr(), "imbang: following connections, until Ctrl-C") }
	return followConns(c.Context(), rule, begun, c.OutOrStdout(), f.out.Format == "json")
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
			return json.NewEncoder(out).Encode(jsonEvent(e))
		}
		_, err := fmt.Fprintln(out, connectionLine(e))
		return err
	})
}

// eventJSON is an event with the type of its entry, named as in a listing.
type eventJSON struct {
	director.ConnectionEvent
	Type string `json:"type,omitempty"`
}

func jsonEvent(e director.ConnectionEvent) eventJSON {
	switch {
	case e.Kind == director.ConnectionLost:
		return eventJSON{ConnectionEvent: e}
	case e.IsTemplate:
		return eventJSON{e, "template"}
	}
	return eventJSON{e, "connection"}
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
	return fmt.Sprintf("%d events are lost here: they came faster than they were read (--service and --event select)", n)
}
