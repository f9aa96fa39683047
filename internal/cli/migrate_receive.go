// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/place"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/handover"
	"imbang/internal/daemon/sync/ipvsconn"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

// receivedReport is what imbang migrate receive prints with --output json.
type receivedReport struct {
	// Backup is whether connections are synchronized.
	Backup      backupState           `json:"backup"`
	Table       *handover.Table       `json:"table,omitempty"`
	Connections *handover.Connections `json:"connections,omitempty"`
}

// backupState is whether the backup role runs.
type backupState string

const (
	backupStarted backupState = "started"
	backupRuns    backupState = "running"
	backupNone    backupState = "none"
)

// receiveFlags are the flags of imbang migrate receive.
type receiveFlags struct {
	out                command.OutputFlag
	table, connections string
	sync               syncFlags
}

func newMigrateReceiveCommand() *cobra.Command {
	var f receiveFlags
	c := &cobra.Command{
		Use:   "receive [--table FILE] [--connections FILE] [--interface DEVICE]",
		Short: "Enter the table and the connections of a director with ip_vs",
		Long: `Enters what a director with Linux's ip_vs has into the director of this network
namespace, in this order:

  --table FILE        services and servers, as ipvsadm -Sn prints them
  --interface DEVICE  starts the role backup, as imbang ipvsadm --start-daemon backup
                      does, unless it runs: it follows the other director's master
                      from then on, and after this command. imbang ipvsadm --stop-daemon
                      backup ends it
  --connections FILE  connections and persistence templates, the text of
                      /proc/net/ip_vs_conn: a master does not send idle connections,
                      and none that were opened less than 3 packets ago

FILE may be - for standard input, for one of the two. Read the connections from the
other machine after the backup has started, in a second command: what changes between
the listing and the start is missed otherwise.

What is in the table already is not changed: services and servers, also if they differ,
and connections, of which synchronization or a packet told later than the listing. So
the command can be repeated, and only adds what is missing. Each line is counted as
entered, there already or refused, with the reason; the first ten refusals are printed.

  no_service   the table has no service for the connection
  no_server    no service for it has its server
  table_full   there is no room (imbang attach --max-connections)
  unsupported  the table cannot have such an entry; the message says why
  line         no line of /proc/net/ip_vs_conn

A connection gets the forwarding method of its server and the time that it has left, a
template at least 60 s. The listing does not say which service a connection is of. The
first of these is taken that has its server: the service of the mark that imbang mark
gives to packets to the virtual address; the service of the virtual address and port;
another fwmark service. Where several fwmark services have the server, the lowest mark
is taken, and the connection is counted as guessed: it is forwarded as before, but it
may be counted at the wrong service.

Exit status: 0 everything is in the table; 1 lines were refused; 2 wrong command line;
3 a file cannot be read or is none of these, or the director cannot be changed.`,
		Example: `  ssh k ipvsadm -Sn | imbang migrate receive --table - --interface eth2 --sync-id 7
  ssh k cat /proc/net/ip_vs_conn | imbang migrate receive --connections -
  imbang migrate receive --connections listing --output json | jq .connections.reasons`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.table, "table", "", "`FILE` with the output of ipvsadm -Sn; - is standard input")
	c.Flags().StringVar(&f.connections, "connections", "", "`FILE` with the text of /proc/net/ip_vs_conn; - is standard input")
	f.sync.registerLinux(c)
	c.Flags().Lookup("interface").Usage = "network `DEVICE` by which the other director's master sends: start the role backup there"
	f.out.Register(c, command.One[receivedReport](""))
	return c
}

func (f *receiveFlags) run(c *cobra.Command) error {
	if err := f.out.Check(); err != nil {
		return err
	}
	config, err := f.check()
	if err != nil {
		return command.Usage(err)
	}
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	var r receivedReport
	err = f.receive(c, d, config, &r)
	refused := r.Table != nil && r.Table.Refused > 0 || r.Connections != nil && r.Connections.Refused > 0
	if r.Backup != "" { // there is something to report
		err = errors.Join(err, f.out.Print(c.OutOrStdout(), r, r.print))
	}
	if err == nil && refused {
		return command.ErrNotAsExpected
	}
	return err
}

// check reads the command line; the configuration is that of the role, if there is an
// interface.
func (f *receiveFlags) check() (config synchronize.Config, err error) {
	switch {
	case f.table == "" && f.connections == "" && f.sync.device == "":
		return config, errors.New("nothing to receive: give --table, --connections or --interface")
	case f.table == "-" && f.connections == "-":
		return config, errors.New("--table and --connections cannot both read standard input: use a file, or two commands")
	case f.sync.device == "":
		for _, flag := range []string{"sync-id", "group", "port", "ttl", "max-length"} {
			if f.sync.flags.Changed(flag) {
				return config, fmt.Errorf("--%s requires --interface", flag)
			}
		}
		return config, nil
	}
	return f.sync.migration(synchronize.RoleBackup)
}

func (f *receiveFlags) receive(c *cobra.Command, d *director.Director, config synchronize.Config, r *receivedReport) (err error) {
	if f.table != "" {
		text, err := readInput(c.Context(), f.table, c.InOrStdin())
		if err != nil {
			return err
		}
		entered, err := handover.EnterTable(c.Context(), table{d}, text)
		if errors.Is(err, handover.ErrEmptyTable) {
			return fmt.Errorf("%s: %w: did the command on the other director fail?", inputName(f.table), err)
		}
		r.Table, r.Backup = &entered, backupNone
		if err != nil {
			return fmt.Errorf("enter the table of %s: %w", inputName(f.table), err)
		}
	}
	if r.Backup, err = startBackup(config); err != nil {
		return err
	}
	if f.connections == "" {
		return nil
	}
	if r.Backup == backupNone {
		fmt.Fprintln(c.ErrOrStderr(), "imbang: note: the role backup does not run here: what changes on the other director after its listing is not followed (--interface)")
	}
	text, err := readInput(c.Context(), f.connections, c.InOrStdin())
	if err != nil {
		return err
	}
	shown := newBar(c.ErrOrStderr(), "connections", bytes.Count(text, []byte("\n"))-1)
	entered, err := handover.EnterConnections(c.Context(), text, d.Supplement, shown.set)
	shown.end()
	r.Connections = &entered
	if errors.Is(err, ipvsconn.ErrHeading) {
		return fmt.Errorf("%s: %w (cat /proc/net/ip_vs_conn on the other director; ipvsadm -Lcn and ip_vs_conn_sync have other columns)", inputName(f.connections), err)
	}
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// startBackup starts the role, if a configuration has an interface and the role does not
// run.
func startBackup(config synchronize.Config) (backupState, error) {
	dir, err := place.Dir()
	if err != nil {
		return backupNone, err
	}
	roles, err := running.List(dir)
	if err != nil {
		return backupNone, err
	}
	at := slices.IndexFunc(roles, func(r running.Role) bool { return r.Role == string(synchronize.RoleBackup) })
	switch {
	case at < 0 && config.Interface == "":
		return backupNone, nil
	case at < 0:
		if _, err := startDetached(dir, config); err != nil {
			return backupNone, err
		}
		return backupStarted, nil
	case config.Interface != "" && (roles[at].Interface != config.Interface || roles[at].SyncID != config.SyncID || roles[at].Group != config.Group || roles[at].Port != config.Port):
		r := roles[at]
		return backupRuns, fmt.Errorf("the role backup runs already with --interface %s --sync-id %d --group %s --port %d: give the same, or end it first (imbang ipvsadm --stop-daemon backup)", r.Interface, r.SyncID, r.Group, r.Port)
	}
	return backupRuns, nil
}

// inputName is how messages name an input.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// readInput reads a file or standard input, until the context ends.
func readInput(ctx context.Context, name string, stdin io.Reader) (text []byte, err error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	if !until(ctx, func() { text, err = io.ReadAll(in) }) {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", inputName(name), err)
	}
	return text, nil
}

func (r receivedReport) print(w io.Writer) error {
	if t := r.Table; t != nil {
		fmt.Fprintf(w, "services: %d added, %d there already\nservers: %d added, %d there already\n",
			t.Services.Added, t.Services.Existed, t.Servers.Added, t.Servers.Existed)
		printRefusals(w, "table", "line", t.Refused, t.Refusals)
	}
	if r.Backup != backupNone {
		fmt.Fprintf(w, "backup role: %s\n", r.Backup)
	}
	if c := r.Connections; c != nil {
		fmt.Fprintf(w, "connections: %d entered, %d there already, %d refused\n", c.Entered, c.Existed, c.Refused)
		if c.Guessed > 0 {
			fmt.Fprintf(w, "  %d entered at the lowest mark of several fwmark services with their server\n", c.Guessed)
		}
		for _, reason := range slices.Sorted(maps.Keys(c.Reasons)) {
			fmt.Fprintf(w, "  %d refused: %s\n", c.Reasons[reason], reason)
		}
		printRefusals(w, "connections", "line", 0, c.Refusals)
		if more := c.Refused - len(c.Refusals); more > 0 {
			fmt.Fprintf(w, "  %d more were refused\n", more)
		}
	}
	return nil
}

// printRefusals prints refused lines one by one, behind their number if there is one.
func printRefusals(w io.Writer, what, noun string, refused int, list []handover.Refusal) {
	if refused > 0 {
		fmt.Fprintf(w, "%s: %s refused\n", what, plural(refused, noun, noun+"s"))
	}
	for _, one := range list {
		fmt.Fprintf(w, "  line %d: %s: %s\n", one.Line, one.Text, one.Why)
	}
	if more := refused - len(list); more > 0 {
		fmt.Fprintf(w, "  %d more were refused\n", more)
	}
}
