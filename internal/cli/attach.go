// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

// The values of attach's --redirect.
const (
	redirectPeer   = "peer"
	redirectDevice = "device"
)

var redirects = []string{redirectPeer, redirectDevice}

func newAttachCommand() *cobra.Command {
	var client, server, hook, mode, redirect string
	var sizes director.Sizes
	var limits sizeFlags
	c := &cobra.Command{
		Use:   "attach --client-dev DEV --server-dev DEV",
		Short: "Load the director and attach it to devices",
		Long: `Loads the director of this network namespace, unless it is loaded, and attaches
its programs to the ingress of two devices: the one that receives clients'
packets and the one that receives real servers' replies. Both may be the same
device. The director then works in the kernel; no process of imbang runs.

The table of virtual services may be set before or after with ipvsadm. Packets
to the virtual addresses must reach this machine: add the addresses to a device
(ip address add 10.20.0.1/32 dev lo) or route them here. With masquerading, the
real servers' replies must be routed through this machine.

The programs are attached to the tcx hook (Linux 6.6 or later), otherwise to a
filter of the device's clsact qdisc, which is created if it does not exist. Other
programs and filters stay, and process the packets that the director passes.

In the modes xdp and xdp-generic, XDP programs on the same devices handle what
they can before the kernel allocates an skb: whole TCP and UDP packets of
masqueraded or directly routed connections, and new connections. All other
packets are handled by the programs above. Mode xdp runs in the drivers and fails
if a driver does not support it; xdp-generic runs on any device; auto is xdp if
both drivers were tested on hardware, otherwise tc. No driver has been tested so
far, so auto is tc. The chosen mode is printed with the reason.

A device that is a veth pair into another network namespace, as that of a
container, gets packets at its other end at once (bpf_redirect_peer). With
--redirect device the director sends them through the device instead, as other
forwarders do: its queueing discipline, egress filters and captures see them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if client == "" || server == "" {
				return command.Usage(errors.New("attach needs --client-dev and --server-dev (the same device may be both)"))
			}
			if !slices.Contains(director.Hooks, director.Hook(hook)) {
				return command.Usage(fmt.Errorf("unknown hook %q (auto, tcx or clsact)", hook))
			}
			if !slices.Contains(director.Modes, director.Mode(mode)) {
				return command.UnknownMode(mode)
			}
			if !slices.Contains(redirects, redirect) {
				return command.Usage(fmt.Errorf("unknown value %q of --redirect (%s)", redirect, strings.Join(redirects, " or ")))
			}
			if err := limits.parse(); err != nil {
				return err
			}
			// Before the director is loaded.
			if err := director.CheckMode(client, server, director.Mode(mode)); err != nil {
				return err
			}
			d, err := director.OpenOrLoad(sizes)
			if err != nil {
				return err
			}
			defer d.Close()
			choice, err := d.AttachMode(client, server, director.Hook(hook), director.Mode(mode))
			if err != nil {
				return err
			}
			if redirect == redirectDevice {
				if err := d.WithoutPeers(); err != nil {
					return err
				}
			}
			fmt.Fprintln(c.OutOrStdout(), choice)
			if !forwards() {
				fmt.Fprintln(c.ErrOrStderr(), "imbang: note: net.ipv4.ip_forward is 0, so the kernel has no route to the servers: sysctl -w net.ipv4.ip_forward=1")
			}
			return nil
		},
	}
	c.Flags().StringVar(&client, "client-dev", "", "device that clients' packets come in by")
	c.Flags().StringVar(&server, "server-dev", "", "device that real servers' replies come in by")
	_ = c.RegisterFlagCompletionFunc("client-dev", completeDevices)
	_ = c.RegisterFlagCompletionFunc("server-dev", completeDevices)
	c.Flags().StringVar(&hook, "hook", string(director.HookAuto), "where to attach: tcx, clsact, or auto for tcx where the kernel has it")
	_ = c.RegisterFlagCompletionFunc("hook", cobra.FixedCompletions([]string{"auto", "tcx", "clsact"}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&redirect, "redirect", redirectPeer, "last step of packets to veth pairs into other network namespaces: peer, at once to the other end, or device, through the device")
	_ = c.RegisterFlagCompletionFunc("redirect", cobra.FixedCompletions(redirects, cobra.ShellCompDirectiveNoFileComp))
	command.RegisterMode(c, &mode, string(director.ModeAuto))
	limits = registerSizes(c, &sizes)
	return c
}

// forwards reports whether the kernel forwards IPv4 packets here at all.
func forwards() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	return err != nil || strings.TrimSpace(string(b)) != "0"
}

func newDetachCommand() *cobra.Command {
	var keep, force bool
	c := &cobra.Command{
		Use:   "detach",
		Short: "Remove the director of this network namespace",
		Long: `Takes the director's programs off their devices and removes it with its table,
counters and connections. With --keep-table only the programs go: services,
servers and connections are there again after the next attach. Without it, processes that
synchronize connections (imbang sync, ipvsadm --start-daemon) are stopped, too, and the
virtual addresses that imbang run added are deleted, each of which is printed.

A daemon (imbang run) keeps its director and these addresses: stop it first. --force removes
the director under it; imbang reload then loads it again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			running := noDaemon(c.Context())
			if running != nil && !force {
				return running
			}
			if keep {
				return director.Detach(false)
			}
			if err := stopRoles(); err != nil {
				return err
			}
			if running == nil { // which would add them again
				lines, err := daemon.DropAddresses()
				for _, line := range lines {
					fmt.Fprintln(c.OutOrStdout(), line)
				}
				if err != nil {
					return err
				}
			}
			if err := director.Detach(true); err != nil {
				return err
			}
			place.Sweep()
			return nil
		},
	}
	c.Flags().BoolVar(&keep, "keep-table", false, "keep services, servers, counters and connections")
	c.Flags().BoolVar(&force, "force", false, "also under a daemon that runs")
	return c
}

// stopRoles stops the processes that synchronize connections, as Linux does when its module
// is unloaded. Those of a daemon are left: it is there by force, and starts them again when
// there is a director.
func stopRoles() error {
	dir, err := place.Dir()
	if err != nil {
		return nil // no network namespace that could have one
	}
	for _, role := range running.Roles {
		err := running.Stop(dir, role, stopPatience)
		if err != nil && !errors.Is(err, running.ErrNone) && !errors.As(err, new(*running.OfDaemon)) {
			return err
		}
	}
	return nil
}

// noDaemon fails if a daemon keeps the director of this network namespace.
func noDaemon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	d, err := api.NewClient()
	if err != nil {
		return nil // no network namespace that could have one
	}
	s, err := d.Status(ctx)
	if err != nil {
		return nil
	}
	return fmt.Errorf("a daemon runs (process %d) and keeps the director: stop it first (systemctl stop imbang), or use --force", s.PID)
}
