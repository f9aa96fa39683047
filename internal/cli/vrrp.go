// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/director"
)

func newVRRPCommand() *cobra.Command {
	var file, format string
	c := &cobra.Command{
		Use:   "vrrp [-c FILE]",
		Short: "Move addresses between directors by VRRP",
		Long: `Elects a master among the directors that have the same groups of addresses (section
vrrp of the configuration), by VRRP version 3 (RFC 9568), and configures the addresses
on this host while it is master. keepalived can be the other director. It runs in the
foreground until SIGINT or SIGTERM, in a process of its own: imbang run may be
restarted and upgraded meanwhile.

At the end it resigns, and another director takes over at once. If it is killed, the
others take over after three to four intervals; addresses that it leaves behind are
removed by imbang vrrp clean, which the systemd unit runs, or by the next start. Addresses
that the host has otherwise are never removed.

SIGHUP applies the file again, without a transition; a file that is not valid changes
nothing. SIGUSR2 executes the program again, as after an upgrade of the package, without
a transition: a master announces an interval of 1 s before, so that other directors wait
until the new program advertises. That goes on with the configuration of the old one and
then reads the file, as after SIGHUP. Track scripts that run then are killed, and so are
notify commands that have not ended after 10 s.

A group is in fault, and another director master, while one of its devices is missing, is
down, or has no carrier; for 10 s after addresses could not be configured or advertisements
not sent for four intervals, and twice as long each time that happens again, up to 10 min.
After such a failure it does not preempt another master until it was master with all its
addresses, or SIGHUP. Notify commands run as root, one after the other for each group, and
are killed after 30 s.

The process is real-time (SCHED_RR) and its memory locked, if that is allowed. That applies
to the thread that advertises and to the one that configures addresses, not to the Go
runtime's others; the memory is collected seldom (GOGC changes that). With an
interval of 10 ms a CPU should be free for it.

Requires root. The exit status is 0 after a signal, 2 for a wrong command line, or 3 if
it failed.`,
		Example: `  imbang vrrp
  imbang vrrp -c /etc/imbang/imbang.yaml --log json
  imbang vrrp status`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := unitLogger(format, c.ErrOrStderr())
			if err != nil {
				return command.Usage(err)
			}
			return runVRRP(c, file, log)
		},
	}
	registerConfig(c, &file)
	registerLog(c, &format)
	c.AddCommand(newVRRPStatusCommand(), newVRRPCleanCommand())
	return c
}

func runVRRP(c *cobra.Command, file string, log *slog.Logger) error {
	// Now, as the file of an upgrade may have taken its place later.
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	dir, err := place.VRRPDir()
	if err != nil {
		return err
	}
	reload, replace := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(replace, syscall.SIGUSR2)
	ready := func() {
		daemon.Ready()
		go place.SweepVRRP() // now that the own directory is locked
	}
	return process.Run(c.Context(), process.Options{
		Load: func() (*setup.Setup, error) { return loadVRRP(file) },
		File: file, Dir: dir, Log: log, Ready: ready, Reload: reload, Replace: replace, RealTime: true, OpenPlane: openPlane,
		Execute: func() error {
			// Signals that are ignored stay so until the next program handles them.
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
			err := syscall.Exec(program, os.Args, os.Environ())
			signal.Notify(reload, syscall.SIGHUP)
			signal.Notify(replace, syscall.SIGUSR2)
			return fmt.Errorf("execute %s: %w", program, err)
		},
	})
}

// openPlane opens the director that is loaded, if one is.
func openPlane() (process.Plane, error) {
	f, err := director.OpenFailover()
	switch {
	case errors.Is(err, director.ErrNotLoaded):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return plane{f}, nil
}

// plane is a director's data plane as imbang vrrp uses it.
type plane struct{ *director.Failover }

func (p plane) Hand(index int, to net.HardwareAddr, until time.Duration) error {
	return p.Failover.Hand(director.LinkAddress{Index: index, MAC: to}, until)
}

func (p plane) Peers(all []process.PeerAddress) error {
	var to []director.LinkAddress
	for _, one := range all {
		to = append(to, director.LinkAddress{Index: one.Index, MAC: one.MAC})
	}
	return p.Failover.Peers(to...)
}

func loadVRRP(file string) (*setup.Setup, error) {
	c, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	if c.VRRP == nil {
		return nil, fmt.Errorf("%s has no section vrrp: write what moves between the directors there", file)
	}
	return c.VRRP, nil
}
