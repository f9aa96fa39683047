// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
	"imbang/internal/model"
)

// connsFlags are the flags of imbang conns.
type connsFlags struct {
	out                            command.OutputFlag
	service, server, client        string
	state, protocol                string
	onlyTemplates, onlyConnections bool
	count                          bool
	importFrom                     string
	follow                         bool
	events                         []string
}

func newConnsCommand() *cobra.Command {
	var f connsFlags
	c := &cobra.Command{
		Use:   "conns",
		Short: "List, count, follow or import the connection table",
		Long: `Lists the connection table: connections, and the templates of persistent services.
The listing is printed while the table is read; memory use does not depend on the
number of entries, and no lock is taken. The listing is not a snapshot: an entry that
exists during the whole command is listed exactly once, an entry that is created or
removed meanwhile may be listed or not.

Columns of the text output:
  PROTO    tcp, udp or sctp; mark for the template of a fwmark service
  CLIENT   address and port; of a template the address of the clients' network
  VIRTUAL  address and port that the client sends to; of the template of a fwmark
           service the mark, as an address
  SERVER   address and port that packets are forwarded to
  STATE    as in ipvsadm -Lc; of a template ASSURED or NONE
  EXPIRES  time until the entry is removed if no packet arrives [min:s]
  FORWARD  Masq, Route, Tunnel or Local
  DETAILS  flags; mark=MARK of a fwmark service; hairpin=ADDRESS:PORT; of a connection
           that a template controls template=KIND/NETMASK and call=CALL-ID; of a
           template timeout=SECONDS, controls=CONNECTIONS and sip=CALL-ID

Flags:
  inactive  the server counts the connection as inactive
  hairpin   the server sees the director's address in place of the client's
  replied   a reply passed, though the forwarding method does not require it
  listed    replies are found by an entry of their own
  adopted   an upgrade entered the connection
  invalid   new connections do not use this template any more
  replica   another director told of the entry, and no packet has come for it here since; or
            the time of a template is over, and it controls connections

Filters are applied while the table is read; an entry must match all of them.
  --service ADDRESS[:PORT] | fwmark:MARK   entries of this service
  --server ADDRESS[:PORT]                  entries forwarded to this server
  --client ADDRESS[/BITS]                  entries of these clients
  --state STATE, --protocol tcp|udp|sctp
  --connections | --templates              entries of one type

With -o json the output is JSON Lines: one object per line, templates first. Fields
that do not apply are absent.
  type        connection or template
  protocol    tcp, udp, sctp
  client, virtual                          address and port
  service     10.20.0.1:80/tcp, fwmark 3, fwmark 3 (IPv6)
  server      address and port as the service lists the server
  port        the server's port for this entry
  forward, state, flags                    as in the text output
  expires_in  [s]
  packets     packets from the client; counting stops at 9
  mark        of the fwmark service
  hairpin     address and port that the server sees
  template    of a connection: kind (port, address, mark, call), netmask, call_id
  timeout     of a template: persistence timeout [s]
  controls    of a template: its connections
  engine      of a template: the persistence engine, with call_id
A Call-ID that is not valid UTF-8 is written as call_id_hex.

--import FILE reads such lines (- is standard input) and enters the entries into this
director's table with their state and remaining time. The services and servers must
exist under the same names. A template must precede the connections that it
controls, as in the listing. Each entry is counted at its service and server like a
connection opened by a packet; entries for replies and hairpins are created. A
hairpin's address must be the address from which this director sends to the server.
The fields controls and mark and the flags inactive, listed, adopted and replica are not
used: the director computes them. A connection with less than 1 s left gets 1 s, a template with
less than 60 s left 60 s. An entry whose flow exists in the table is not changed. The
command prints how many entries were entered, existed or were refused, and the first
ten refusals with their line numbers.

A line that is not a valid entry ends the import with status 3. A regular FILE is
checked before the first entry is entered, so nothing is changed then; of standard
input, the entries before that line have been entered. The import can be repeated: it
enters what is missing.

` + followHelp + `

Exit status: 0 success, and all imported entries are in the table; 1 entries were
refused; 2 wrong command line; 3 a line is not a valid entry, or the director cannot
be read or changed.`,
		Example: `  imbang conns --service 10.20.0.1:80 --state ESTABLISHED
  imbang conns --client 10.10.0.0/16 --count
  imbang conns --server 172.16.0.2 -o json
  imbang conns --follow --service 10.20.0.1:80 --event open,close
  imbang conns -o json >table && ssh other imbang conns --import - <table`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c)
		},
	}
	f.register(c)
	return c
}

// register adds the flags of the verb.
func (f *connsFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.service, "service", "", "only of this service: ADDRESS, ADDRESS:PORT or fwmark:MARK")
	flags.StringVar(&f.server, "server", "", "only to this server: ADDRESS or ADDRESS:PORT")
	flags.StringVar(&f.client, "client", "", "only of clients of this address or prefix")
	flags.StringVar(&f.state, "state", "", "only in this state")
	flags.StringVar(&f.protocol, "protocol", "", "only of this protocol: tcp, udp or sctp")
	flags.BoolVar(&f.onlyConnections, "connections", false, "connections only")
	flags.BoolVar(&f.onlyTemplates, "templates", false, "persistence templates only")
	flags.BoolVar(&f.count, "count", false, "print the number of entries")
	flags.StringVar(&f.importFrom, "import", "", "enter the entries of a file that -o json wrote (- is standard input)")
	flags.BoolVarP(&f.follow, "follow", "f", false, "print what happens to entries, until Ctrl-C")
	flags.StringSliceVar(&f.events, "event", nil, "with --follow: only these events: open, state, close")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"service": completeServices, "server": completeServerPorts, "client": cobra.NoFileCompletions,
		"state":    completeStates,
		"protocol": cobra.FixedCompletions([]string{"tcp", "udp", "sctp"}, cobra.ShellCompDirectiveNoFileComp),
		"event":    cobra.FixedCompletions(director.ConnectionKinds(), cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = c.RegisterFlagCompletionFunc(flag, complete)
	}
	f.out.Register(c,
		command.Lines[connJSON]("without --count, --import and --follow: each entry"),
		command.One[entryCount]("--count"),
		command.One[importReport]("--import"),
		command.Lines[eventJSON]("--follow: each event"))
}

// completeStates offers the names of states. They are read from the data plane's own,
// which takes too long for other commands.
func completeStates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return director.ConnectionStates(), cobra.ShellCompDirectiveNoFileComp
}

// completeServerPorts offers the real servers' addresses, alone and with the port.
func completeServerPorts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(func(s model.ServiceStatus) (servers []string) {
		for _, server := range s.Servers {
			servers = append(servers, server.Addr.String(), server.AddrPort().String())
		}
		return servers
	})
}

func (f *connsFlags) run(c *cobra.Command) error {
	if err := f.out.Check(); err != nil {
		return err
	}
	if f.follow {
		return f.runFollow(c)
	}
	if c.Flags().Changed("event") {
		return command.Usage(errors.New("--event requires --follow"))
	}
	filter, err := f.filter()
	if err != nil {
		return err
	}
	if c.Flags().Changed("import") {
		return f.runImport(c, filter)
	}
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	if f.count {
		return f.printCount(c.OutOrStdout(), d, filter)
	}
	w := bufio.NewWriterSize(c.OutOrStdout(), 1<<16)
	if f.out.Format == "json" {
		err = printConnsJSON(w, d, filter)
	} else {
		err = printConns(w, d.Connections(filter))
	}
	return errors.Join(err, w.Flush())
}

// runImport enters a file's entries. Filters and --count say nothing of it.
func (f *connsFlags) runImport(c *cobra.Command, filter director.ConnectionFilter) error {
	if f.count || filter != (director.ConnectionFilter{}) {
		return command.Usage(errors.New("--import enters all entries of its file: it has no filters and no --count"))
	}
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	report, err := importConns(c.Context(), d, f.importFrom, c.InOrStdin())
	if printed := f.out.Print(c.OutOrStdout(), report, report.print); printed != nil {
		err = errors.Join(err, printed)
	}
	if err == nil && report.Refused > 0 {
		return command.ErrNotAsExpected
	}
	return err
}

// filter is what the flags say.
func (f *connsFlags) filter() (out director.ConnectionFilter, err error) {
	if f.service != "" {
		var service director.Filter
		if err := parseServiceFilter(f.service, &service); err != nil {
			return out, err
		}
		out.Service, out.Mark = service.Virtual, service.Mark
	}
	if f.server != "" {
		if out.Server, err = parseServer(f.server); err != nil {
			return out, err
		}
	}
	if f.client != "" {
		if out.Client, err = parsePrefix(f.client); err != nil {
			return out, err
		}
	}
	if f.state != "" {
		out.State = strings.ToUpper(f.state)
		if states := director.ConnectionStates(); !slices.Contains(states, out.State) {
			return out, command.Usage(fmt.Errorf("%q is not a state (%s)", f.state, strings.Join(states, ", ")))
		}
	}
	if f.protocol != "" {
		var ok bool
		if out.Protocol, ok = model.ProtocolNamed(strings.ToLower(f.protocol)); !ok {
			return out, command.Usage(fmt.Errorf("%q is not a protocol (tcp, udp or sctp)", f.protocol))
		}
	}
	switch {
	case f.onlyConnections && f.onlyTemplates:
		return out, command.Usage(errors.New("--connections and --templates exclude each other"))
	case f.onlyConnections:
		out.Kind = director.OnlyConnections
	case f.onlyTemplates:
		out.Kind = director.OnlyTemplates
	}
	return out, nil
}

// parseServer reads a server's address, or its address and port.
func parseServer(s string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(addr, 0), nil
	}
	server, err := netip.ParseAddrPort(s)
	if err != nil {
		return server, command.Usage(fmt.Errorf("%q is not a server such as 172.16.0.2, 172.16.0.2:80 or [2001:db8::2]:80", s))
	}
	return server, nil
}

// entryCount is the number of entries in JSON.
type entryCount struct {
	Count uint64 `json:"count"`
}

func (f *connsFlags) printCount(w io.Writer, d *director.Director, filter director.ConnectionFilter) error {
	n, err := d.CountConnections(filter)
	if err != nil {
		return err
	}
	return f.printNumber(w, n)
}

// printNumber prints one line in both formats: with -o json all output of the verb
// is JSON Lines.
func (f *connsFlags) printNumber(w io.Writer, n uint64) error {
	if f.out.Format == "json" {
		return json.NewEncoder(w).Encode(entryCount{n})
	}
	_, err := fmt.Fprintln(w, n)
	return err
}

// connColumns are the columns of the listing. It is printed before its widest field is
// known, so longer ones, as those of IPv6, move the rest of their line.
const connColumns = "%-5s %-21s %-21s %-21s %-11s %7s %-7s %s\n"

func printConns(w io.Writer, all iter.Seq2[model.Connection, error]) error {
	titled := false
	title := func() (err error) {
		if !titled {
			titled = true
			_, err = fmt.Fprintf(w, connColumns, "PROTO", "CLIENT", "VIRTUAL", "SERVER", "STATE", "EXPIRES", "FORWARD", "DETAILS")
		}
		return err
	}
	for c, err := range all {
		if err != nil {
			return err
		}
		if err := title(); err != nil {
			return err
		}
		if err := printConn(w, &c); err != nil {
			return err
		}
	}
	return title()
}

func printConn(w io.Writer, c *model.Connection) error {
	protocol := c.Protocol.Word()
	if protocol == "" {
		protocol = "mark"
	}
	line := fmt.Sprintf(connColumns, protocol, c.Client, c.Virtual, c.Server, c.State, clockTime(c), c.Forward, connDetails(c))
	_, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n")
	return err
}

// clockTime is when an entry expires, as minutes and seconds.
func clockTime(c *model.Connection) string {
	left := int64(c.Expires.Seconds())
	return fmt.Sprintf("%02d:%02d", left/60, left%60)
}

// connDetails is what the last column has.
func connDetails(c *model.Connection) string {
	words := c.Flags.Names()
	if c.Service.Mark != 0 {
		words = append(words, fmt.Sprintf("mark=%d", c.Service.Mark))
	}
	if c.Hairpin.IsValid() {
		words = append(words, "hairpin="+c.Hairpin.String())
	}
	if control := c.Control; control != nil {
		words = append(words, fmt.Sprintf("template=%s/%s", control.Kind, netmaskText(control.Netmask, c.Service.Family)))
		if control.CallID != "" {
			words = append(words, fmt.Sprintf("call=%q", control.CallID))
		}
	}
	if c.Template {
		words = append(words, fmt.Sprintf("timeout=%d", int64(c.Timeout.Seconds())), fmt.Sprintf("controls=%d", c.Connections))
	}
	if c.Engine != "" {
		words = append(words, fmt.Sprintf("%s=%q", c.Engine, c.EngineData))
	}
	return strings.Join(words, " ")
}
