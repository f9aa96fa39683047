// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/journal"
	"imbang/internal/daemon/place"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

func newSyncCommand() *cobra.Command {
	var f syncFlags
	var format string
	var reports bool
	c := &cobra.Command{
		Use:   "sync master|backup|pair [--protocol linux|imbang] [flags]",
		Short: "Synchronize connections with other directors",
		Long: `Performs one role of connection synchronisation for the director of this network
namespace, which is loaded if it is not. It runs in the foreground until SIGINT or
SIGTERM. There are two protocols:

  linux    the default: the messages of Linux's IPVS (version 1), so that either side
           may be imbang or ip_vs. They are neither acknowledged nor authenticated: use
           an interface that only the directors share. Requires --interface
  imbang   between directors that are imbang: the whole table at first, then each
           opening, change and end, acknowledged and authenticated by a key. Requires
           --listen, --to and --key-file; a multicast group --interface, too

and three roles:

  master   sends connections and persistence templates. With linux it sends them to a
           multicast group, by the settings sync_threshold, sync_period,
           sync_refresh_period, sync_retries, sync_persist_mode and sync_version
           (imbang settings)
  backup   receives them and enters them into the connection table
  pair     both, with protocol imbang alone: for two directors to each of which packets
           may come, as where VRRP moves the addresses. --to is the other director, which
           has this role, too. Nothing changes when an address moves

In a network namespace there is at most one process of each role of protocol linux, and
one of protocol imbang, whether it was started by this command, by ipvsadm --start-daemon
or by the configuration of imbang run. Both protocols can be used at once. imbang status
lists all, imbang ipvsadm -L --daemon those of protocol linux, of which imbang ipvsadm
--stop-daemon ends one. If the process ends or is killed, the director balances as before;
connections that a backup has received stay until they expire.

With Type=notify systemd waits until the sockets are open. To keep a role across
reboots, use such a unit, or the section synchronization of imbang run's configuration.

Requires root. The exit status is 0 after a signal, 2 for a wrong command line, or 3 if
it failed, as where the interface does not exist or the role runs already.`,
		Example: `  imbang sync master --interface eth1 --sync-id 7
  imbang sync backup --interface eth1 --sync-id 7
  imbang sync master --interface eth1 --group ff02::81 --port 9000 --ttl 2
  imbang sync master --protocol imbang --listen 192.0.2.1 --to 192.0.2.2 --key-file /etc/imbang/key
  imbang sync backup --protocol imbang --listen 192.0.2.2 --to 224.0.0.82 --interface eth1 --key-file /etc/imbang/key
  imbang sync pair --protocol imbang --listen 192.0.2.1 --to 192.0.2.2 --key-file /etc/imbang/key`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"master\tsends connections", "backup\treceives connections", "pair\tboth, with protocol imbang"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			ready := daemon.Ready
			if reports {
				to := outcomePipe()
				defer func() { to.failed(err) }()
				ready = to.ready
			}
			role, err := f.role(args[0])
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
			return role(c.Context(), dir, log, ready)
		},
	}
	f.register(c)
	registerLog(c, &format)
	c.Flags().BoolVar(&reports, detachedFlag, false, "report on descriptor 3 whether the sockets are open")
	_ = c.Flags().MarkHidden(detachedFlag)
	c.AddCommand(newBarrierCommand())
	return c
}

// Protocols of imbang sync.
const (
	protocolLinux  = "linux"
	protocolImbang = "imbang"
)

// flagsOf are the flags of each protocol, beside --protocol and --log.
var flagsOf = map[string][]string{
	protocolLinux:  {"interface", "group", "sync-id", "port", "ttl", "max-length"},
	protocolImbang: {"interface", "group", "listen", "to", "key-file"},
}

// syncFlags are what a role is told.
type syncFlags struct {
	protocol, device, group string
	id, ttl                 uint8
	port                    uint16
	maxLength               int
	listen, keyFile         string
	to                      []string
	flags                   *pflag.FlagSet
}

// register adds the flags of both protocols.
func (f *syncFlags) register(c *cobra.Command) {
	f.registerLinux(c)
	f.flags.StringVar(&f.protocol, "protocol", protocolLinux, "linux: as ip_vs has it; imbang: between directors that are imbang")
	_ = c.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{protocolLinux, protocolImbang}, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"sync-id", "port", "ttl", "max-length"} {
		known := f.flags.Lookup(flag)
		known.Usage = "linux: " + known.Usage
	}
	f.flags.Lookup("interface").Usage = "network `DEVICE` by which messages are sent and received; required with protocol linux, a multicast group or link-local addresses"
	f.flags.Lookup("group").Usage = "with protocol linux the multicast `ADDRESS`, IPv4 or IPv6; default 224.0.0.81. With imbang the number of the group, 0 to 65535: directors of other groups are ignored; default 0"
	f.flags.StringVar(&f.listen, "listen", "", "imbang: required; `ADDRESS[:PORT]` of this director; default port 8790")
	f.flags.StringArrayVar(&f.to, "to", nil, "imbang: required; `ADDRESS[:PORT]` of another director (repeat it for each), or of one multicast group; default port that of --listen")
	f.flags.StringVar(&f.keyFile, "key-file", "", "imbang: required; `FILE` with the key that all directors of the group share: at least 32 hexadecimal digits (openssl rand -hex 32), readable by its owner alone")
	for _, flag := range []string{"listen", "to"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// registerLinux adds the flags of protocol linux alone.
func (f *syncFlags) registerLinux(c *cobra.Command) {
	f.flags = c.Flags()
	f.flags.StringVarP(&f.device, "interface", "i", "", "required; network `DEVICE` by which messages are sent")
	_ = c.RegisterFlagCompletionFunc("interface", completeDevices)
	f.flags.StringVar(&f.group, "group", "", "multicast `ADDRESS`, IPv4 or IPv6; default 224.0.0.81")
	boundedVar(f.flags, &f.id, "sync-id", 0, 0, "`NUMBER` 0 to 255 in messages; a backup accepts those of its number, with 0 all")
	boundedVar(f.flags, &f.port, "port", 8848, 1, "UDP `PORT`")
	boundedVar(f.flags, &f.ttl, "ttl", 1, 1, "time to live of messages, 1 to 255: `ROUTERS` that they may pass, and one")
	f.flags.IntVar(&f.maxLength, "max-length", 0, "`BYTES` of a message at most, 1 to 65507; default 1472 (IPv6 1452), of a backup by the device's MTU where that is larger")
	for _, flag := range []string{"sync-id", "group", "port", "ttl", "max-length"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// performance performs a role in the foreground.
type performance func(ctx context.Context, dir string, log *slog.Logger, ready func()) error

// role is what the flags say.
func (f *syncFlags) role(role string) (performance, error) {
	if !replicate.Role(role).Known() {
		return nil, fmt.Errorf("unknown role %q: want master, backup or pair", role)
	}
	if err := f.checkProtocol(); err != nil {
		return nil, err
	}
	if f.protocol == protocolLinux && !slices.Contains(running.Kernel, role) {
		return nil, fmt.Errorf("role %s is of protocol %s: add --protocol %s", role, protocolImbang, protocolImbang)
	}
	if f.protocol == protocolImbang {
		config, err := f.replication(role)
		return func(ctx context.Context, dir string, log *slog.Logger, ready func()) error {
			return perform.Replication(ctx, config, perform.ReplicationOptions{
				Dir: dir, By: running.ByCommand, Log: log, Ready: func(*replicate.Replica) { ready() },
			})
		}, err
	}
	config, err := f.config(role)
	return func(ctx context.Context, dir string, log *slog.Logger, ready func()) error {
		return perform.Role(ctx, config, perform.Options{
			Dir: dir, By: running.ByCommand, Log: log, Counts: &synchronize.Counts{},
			Ready: func(synchronize.Config) { ready() }, Missing: func(m []synchronize.Missing) { logMissing(log, m) },
		})
	}, err
}

// checkProtocol refuses flags of the other protocol.
func (f *syncFlags) checkProtocol() (err error) {
	own, known := flagsOf[f.protocol]
	if !known {
		return fmt.Errorf("--protocol %q: want %s or %s", f.protocol, protocolLinux, protocolImbang)
	}
	other := protocolImbang
	if f.protocol == protocolImbang {
		other = protocolLinux
	}
	f.flags.Visit(func(flag *pflag.Flag) {
		if err == nil && !slices.Contains(own, flag.Name) && slices.Contains(flagsOf[other], flag.Name) {
			err = fmt.Errorf("--%s is of protocol %s, and this is %s: remove it, or use --protocol %s", flag.Name, other, f.protocol, other)
		}
	})
	return err
}

// replication is what the flags say of a role of protocol imbang.
func (f *syncFlags) replication(role string) (c replicate.Config, err error) {
	for _, required := range []struct{ flag, value, example string }{
		{"listen", f.listen, "192.0.2.1"}, {"to", strings.Join(f.to, ""), "192.0.2.2"}, {"key-file", f.keyFile, "/etc/imbang/key"},
	} {
		if required.value == "" {
			return c, fmt.Errorf("sync %s --protocol imbang requires --%s, such as --%s %s", role, required.flag, required.flag, required.example)
		}
	}
	c = replicate.Config{Role: replicate.Role(role), Interface: f.device, KeyFile: f.keyFile}
	if f.group != "" {
		group, err := strconv.ParseUint(f.group, 10, 16)
		if err != nil {
			return c, fmt.Errorf("--group %q: want a number from 0 to 65535 with protocol imbang (a multicast address belongs to --to)", f.group)
		}
		c.Group = uint16(group)
	}
	if c.Listen, err = replicate.ParseAddress(f.listen); err != nil {
		return c, fmt.Errorf("--listen %w", err)
	}
	for _, text := range f.to {
		to, err := replicate.ParseAddress(text)
		if err != nil {
			return c, fmt.Errorf("--to %w", err)
		}
		c.To = append(c.To, to)
	}
	if err := c.Complete(); err != nil {
		return c, errors.New("--" + strings.TrimPrefix(err.Error(), "replication: "))
	}
	return c, nil
}

// config is what the flags say of a role of protocol linux.
func (f *syncFlags) config(role string) (c synchronize.Config, err error) {
	if f.device == "" {
		return c, fmt.Errorf("sync %s requires --interface, such as --interface eth1", role)
	}
	if f.group == "" {
		f.group = synchronize.DefaultGroup().String()
	}
	group, err := netip.ParseAddr(f.group)
	if err != nil || !group.IsMulticast() || group.Is4In6() || group.Zone() != "" {
		return c, fmt.Errorf("--group %q: want a multicast address, such as 224.0.0.81 or ff02::81", f.group)
	}
	if f.flags.Changed("max-length") && (f.maxLength < 1 || f.maxLength > 65507) {
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
		log.Warn("the table lacks what the master has: its connections are entered when it is added", "missing", m.String(), "entries", m.Entries)
	}
	if more := len(missing) - 10; more > 0 {
		log.Warn("the table lacks more services and servers of the master", "number", more)
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

// unitLogger is the log of a process that has a unit of systemd: as text, it goes to the
// journal with its fields where there is one.
func unitLogger(format string, w io.Writer) (*slog.Logger, error) {
	if h := journal.New(); h != nil && format == "text" {
		return slog.New(h), nil
	}
	return logger(format, w)
}
