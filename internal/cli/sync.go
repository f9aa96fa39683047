// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/place"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

func newSyncCommand() *cobra.Command {
	var f syncFlags
	var format string
	var reports bool
	c := &cobra.Command{
		Use:   "sync master|backup --interface DEVICE",
		Short: "Synchronize connections with other directors, as Linux's IPVS does",
		Long: `Performs one role of the kernel's connection synchronisation for the director of
this network namespace, which is loaded if it is not. It runs in the foreground until
SIGINT or SIGTERM. The messages are those of Linux's IPVS (version 1): either side may be
imbang or ip_vs.

  master   sends connections and persistence templates to a multicast group, by the
           settings sync_threshold, sync_period, sync_refresh_period, sync_retries,
           sync_persist_mode and sync_version (imbang settings)
  backup   receives them and enters them into the connection table

A director may have both roles: it sends its own connections and receives those of
others. There is at most one process of each role in a network namespace, whether it was
started by this command, by ipvsadm --start-daemon or by the configuration of imbang run.
imbang ipvsadm -L --daemon lists the roles that run, imbang ipvsadm --stop-daemon ends
one. If the process ends or is killed, the director balances as before; connections that
a backup has received stay until they expire.

The messages are not authenticated: use an interface that only the directors share.

With Type=notify systemd waits until the sockets are open. To keep a role across
reboots, use such a unit, or the section synchronization of imbang run's configuration.

Requires root. The exit status is 0 after a signal, 2 for a wrong command line, or 3 if
it failed, as where the interface does not exist or the role runs already.`,
		Example: `  imbang sync master --interface eth1 --sync-id 7
  imbang sync backup --interface eth1 --sync-id 7
  imbang sync master --interface eth1 --group ff02::81 --port 9000 --ttl 2`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"master\tsends connections", "backup\treceives connections"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			ready := daemon.Ready
			if reports {
				to := outcomePipe()
				defer func() { to.failed(err) }()
				ready = to.ready
			}
			config, err := f.config(args[0])
			if err != nil {
				return command.Usage(err)
			}
			log, err := logger(format, c.ErrOrStderr())
			if err != nil {
				return command.Usage(err)
			}
			dir, err := place.Dir()
			if err != nil {
				return err
			}
			d, err := director.OpenOrLoad(director.Sizes{})
			if err != nil {
				return err
			}
			if err := d.Close(); err != nil {
				return err
			}
			place.Sweep()
			return perform.Role(c.Context(), config, perform.Options{
				Dir: dir, By: running.ByCommand, Log: log, Counts: &synchronize.Counts{},
				Ready: func(synchronize.Config) { ready() }, Missing: func(m []synchronize.Missing) { logMissing(log, m) },
			})
		},
	}
	f.register(c)
	registerLog(c, &format)
	c.Flags().BoolVar(&reports, detachedFlag, false, "report on descriptor 3 whether the sockets are open")
	_ = c.Flags().MarkHidden(detachedFlag)
	return c
}

// syncFlags are what a role is told.
type syncFlags struct {
	device, group string
	id, ttl       uint8
	port          uint16
	maxLength     int
	flags         *pflag.FlagSet
}

func (f *syncFlags) register(c *cobra.Command) {
	f.flags = c.Flags()
	f.flags.StringVarP(&f.device, "interface", "i", "", "required; network `DEVICE` by which messages are sent or received")
	_ = c.RegisterFlagCompletionFunc("interface", completeDevices)
	f.flags.Uint8Var(&f.id, "sync-id", 0, "`NUMBER` 0 to 255 in messages; a backup accepts those of its number, with 0 all")
	f.flags.StringVar(&f.group, "group", "224.0.0.81", "multicast `ADDRESS`, IPv4 or IPv6")
	f.flags.Uint16Var(&f.port, "port", 8848, "UDP `PORT`")
	f.flags.Uint8Var(&f.ttl, "ttl", 1, "time to live of messages, 1 to 255: `ROUTERS` that they may pass, and one")
	f.flags.IntVar(&f.maxLength, "max-length", 0, "`BYTES` of a message at most, 1 to 65507; default 1472 (IPv6 1452), of a backup by the device's MTU where that is larger")
	for _, flag := range []string{"sync-id", "group", "port", "ttl", "max-length"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// config is what the flags say.
func (f *syncFlags) config(role string) (c synchronize.Config, err error) {
	if !slices.Contains(running.Roles, role) {
		return c, fmt.Errorf("unknown role %q: want %s", role, strings.Join(running.Roles, " or "))
	}
	if f.device == "" {
		return c, fmt.Errorf("sync %s requires --interface, such as --interface eth1", role)
	}
	group, err := netip.ParseAddr(f.group)
	if err != nil || !group.IsMulticast() || group.Is4In6() || group.Zone() != "" {
		return c, fmt.Errorf("--group %q: want a multicast address, such as 224.0.0.81 or ff02::81", f.group)
	}
	switch {
	case f.port == 0:
		return c, fmt.Errorf("--port 0: want 1 to 65535")
	case f.ttl == 0:
		return c, fmt.Errorf("--ttl 0: want 1 to 255")
	case f.flags.Changed("max-length") && (f.maxLength < 1 || f.maxLength > 65507):
		return c, fmt.Errorf("--max-length %d: want 1 to 65507", f.maxLength)
	}
	return synchronize.Config{Role: synchronize.Role(role), SyncID: f.id, Interface: f.device, MaxLen: f.maxLength, Group: group, Port: f.port, TTL: f.ttl}, nil
}

// completeDevices offers the network devices.
func completeDevices(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	devices, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// logMissing warns of what a backup's table lacks.
func logMissing(log *slog.Logger, missing []synchronize.Missing) {
	if len(missing) == 0 {
		log.Info("the table has all services and servers of the master again")
		return
	}
	for _, m := range missing[:min(len(missing), 10)] {
		if m.Server.IsValid() {
			log.Warn("a server of the master is missing: its connections are entered when it is added", "service", m.Service, "server", m.Server, "entries", m.Entries)
		} else {
			log.Warn("a service of the master is missing: its connections are entered when it is added", "service", m.Service, "entries", m.Entries)
		}
	}
	if more := len(missing) - 10; more > 0 {
		log.Warn("more services and servers of the master are missing", "number", more)
	}
}

// registerLog adds --log.
func registerLog(c *cobra.Command, format *string) {
	c.Flags().StringVar(format, "log", "text", "format of the log on standard error: text or json")
	_ = c.RegisterFlagCompletionFunc("log", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// logger is the log of a process in the foreground.
func logger(format string, w io.Writer) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, fmt.Errorf("unknown value %q of --log (text or json)", format)
}
