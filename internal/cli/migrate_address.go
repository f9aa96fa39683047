// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/host"
)

// addressReport is what imbang migrate take and release print with --output json.
type addressReport struct {
	Addresses []addressState `json:"addresses"`
}

type addressState struct {
	Address   netip.Prefix `json:"address"`
	Device    string       `json:"device"`
	Changed   bool         `json:"changed"`             // added, or removed
	Announced int          `json:"announced,omitempty"` // times
}

// Bounds of --announcements, and the time between two.
const (
	announcements     = 5
	mostAnnouncements = 1000
	announceInterval  = time.Second
	// answerPatience is how long another owner of an address may take to answer.
	answerPatience = 100 * time.Millisecond
)

func newMigrateTakeCommand() *cobra.Command {
	var out command.OutputFlag
	var device string
	var force bool
	times := announcements
	c := &cobra.Command{
		Use:   "take ADDRESS[/BITS]... --device DEVICE",
		Short: "Add virtual addresses to a device and announce them",
		Long: `Adds addresses to a device, all of them first, and announces each: IPv4 by gratuitous
ARP (RFC 5227, 2.3), IPv6 by unsolicited neighbour advertisements with the Override flag
(RFC 4861, 7.2.6). The neighbours send to this machine then what they sent to the last
owner. Announcements are repeated once a second, five times in all (--announcements),
since a neighbour may miss one.

Before that it asks for 100 ms whether another machine answers for an address that the
device does not have (ARP probes, neighbour solicitations), and adds none if one does: two
owners would share the packets at random. Remove the addresses there first. --force
adds them nevertheless.

Without BITS an address gets a prefix of its own, /32 or /128. IPv6 addresses are
usable at once, without duplicate address detection. An address that the device has
already is announced again, and stays as it is. An address that cannot be added does not
keep the others from being added and announced.

Addresses to which the real servers' packets are routed are virtual addresses, too: with
masquerading take the servers' gateway address as well, on the servers' device.

Ctrl-C ends the announcements; the addresses stay. They do not survive a reboot.

Exit status: 0 success, 2 wrong command line, 3 an address cannot be added or announced.`,
		Example: `  imbang migrate take 192.0.2.80/24 2001:db8::80/64 --device eth0
  imbang migrate take 172.16.0.1/24 --device eth1 --announcements 10`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if times < 1 || times > mostAnnouncements {
				return command.Usage(fmt.Errorf("--announcements %d: want 1 to %d", times, mostAnnouncements))
			}
			report, err := addressArguments(args, device)
			if err != nil {
				return command.Usage(err)
			}
			for _, a := range report.Addresses {
				if p := a.Address; p.Bits() < a.Address.Addr().BitLen()-1 && p.Masked() == p {
					return command.Usage(fmt.Errorf("%s is the address of a network, not of a machine: give the virtual address with the length of the network's prefix", p))
				}
			}
			if !force {
				if err := report.checkFree(device); err != nil {
					return err
				}
			}
			err = report.each((*addressState).add)
			err = errors.Join(err, report.announce(c.Context(), times))
			if len(report.Addresses) == 0 {
				return err
			}
			return errors.Join(err, out.Print(c.OutOrStdout(), report, func(w io.Writer) error { return report.print(w, "added", "there already") }))
		},
	}
	registerDevice(c, &device)
	c.Flags().IntVar(&times, "announcements", announcements, "`TIMES` that each address is announced, 1 to 1000, once a second")
	c.Flags().BoolVar(&force, "force", false, "add the addresses even if another machine answers for them")
	_ = c.RegisterFlagCompletionFunc("announcements", cobra.NoFileCompletions)
	out.Register(c, command.One[addressReport](""))
	return c
}

func newMigrateReleaseCommand() *cobra.Command {
	var out command.OutputFlag
	var device string
	c := &cobra.Command{
		Use:   "release ADDRESS[/BITS]... --device DEVICE",
		Short: "Remove virtual addresses from a device",
		Long: `Removes addresses from a device. BITS may be left out; if they are given, the address
must have them. An address that the device does not have is no error.

The director does not need the addresses: it goes on forwarding the packets that
neighbours still send to this machine until they learn of the new owner. With the first
IPv4 address of a network Linux removes all others of that network from the device,
unless net.ipv4.conf.DEVICE.promote_secondaries is 1. If others than the given addresses
would go, the command names them and removes none.

Exit status: 0 success, 2 wrong command line, 3 an address cannot be removed.`,
		Example:           `  imbang migrate release 192.0.2.80 2001:db8::80 --device eth0`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeOwnAddresses(&device),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			report, err := addressArguments(args, device)
			if err != nil {
				return command.Usage(err)
			}
			given := map[netip.Addr]bool{} // with its bits
			for _, arg := range args {
				if p, err := netip.ParsePrefix(arg); err == nil {
					given[p.Addr()] = true
				}
			}
			if err := report.remove(given); err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), report, func(w io.Writer) error { return report.print(w, "removed", "not there") })
		},
	}
	registerDevice(c, &device)
	out.Register(c, command.One[addressReport](""))
	return c
}

func registerDevice(c *cobra.Command, device *string) {
	c.Flags().StringVarP(device, "device", "d", "", "required; network `DEVICE` of the addresses")
	_ = c.RegisterFlagCompletionFunc("device", completeDevices)
}

// completeOwnAddresses offers the addresses of the device that the command line names already.
func completeOwnAddresses(device *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		one, err := net.InterfaceByName(*device)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		addresses, _ := one.Addrs()
		all := make([]string, len(addresses))
		for i, a := range addresses {
			all[i] = a.String()
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// addressArguments reads addresses of a device.
func addressArguments(args []string, device string) (r addressReport, err error) {
	if device == "" {
		return r, errors.New("--device is required, such as --device eth0")
	}
	seen := map[netip.Addr]bool{}
	for _, arg := range args {
		p, err := netip.ParsePrefix(arg)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(arg); err == nil && a.Zone() == "" {
				p = netip.PrefixFrom(a, a.BitLen())
			}
		}
		a := p.Addr()
		switch {
		case !p.IsValid():
			return r, fmt.Errorf("%q is not an address such as 192.0.2.80, 192.0.2.80/24 or 2001:db8::80/64", arg)
		case a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			return r, fmt.Errorf("%s cannot be a virtual address", a)
		case seen[a]:
			return r, fmt.Errorf("%s is given twice", a)
		}
		seen[a] = true
		r.Addresses = append(r.Addresses, addressState{Address: p, Device: device})
	}
	return r, nil
}

// checkFree reports addresses that the device does not have and another machine has.
func (r *addressReport) checkFree(device string) error {
	var ask []netip.Addr
	for _, a := range r.Addresses {
		_, there, err := host.FindAddress(device, a.Address.Addr())
		if err != nil {
			return err
		}
		if !there {
			ask = append(ask, a.Address.Addr())
		}
	}
	if len(ask) == 0 {
		return nil
	}
	found, err := host.Answered(device, ask, answerPatience)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range ask {
		if mac, is := found[a]; is {
			errs = append(errs, fmt.Errorf("device %s: the machine with hardware address %s has %s: remove it there first (ip address del), or give --force; nothing was added", device, mac, a))
		}
	}
	return errors.Join(errs...)
}

// each does something with each address, and leaves out those with which it failed.
func (r *addressReport) each(do func(*addressState) error) error {
	var errs []error
	var done []addressState
	for _, a := range r.Addresses {
		if err := do(&a); err != nil {
			errs = append(errs, err)
		} else {
			done = append(done, a)
		}
	}
	r.Addresses = done
	return errors.Join(errs...)
}

// add adds an address, unless the device has it.
func (a *addressState) add() error {
	has, there, err := host.FindAddress(a.Device, a.Address.Addr())
	if err != nil {
		return err
	}
	if there {
		a.Address = has
		return nil
	}
	a.Changed = true
	return host.AddAddress(a.Device, a.Address)
}

// remove removes the addresses that the device has: with the same bits, if these were given.
// If other addresses would go with one, none is removed.
func (r *addressReport) remove(given map[netip.Addr]bool) error {
	released := map[netip.Addr]bool{}
	for i := range r.Addresses {
		a := &r.Addresses[i]
		if err := a.find(given[a.Address.Addr()]); err != nil {
			return err
		}
		released[a.Address.Addr()] = true
	}
	var last []netip.Prefix // those with which Linux removes others
	for _, a := range r.Addresses {
		if !a.Changed {
			continue
		}
		with, err := host.RemovedWith(a.Device, a.Address)
		if err != nil {
			return err
		}
		if len(with) > 0 {
			last = append(last, a.Address)
		}
		with = slices.DeleteFunc(with, func(p netip.Prefix) bool { return released[p.Addr()] })
		if len(with) > 0 {
			return fmt.Errorf("device %s: Linux would remove %s with %s, the first address of its network: sysctl -w net.ipv4.conf.%s.promote_secondaries=1 keeps the others; nothing was removed", a.Device, prefixes(with), a.Address, strings.ReplaceAll(a.Device, ".", "/"))
		}
	}
	for _, first := range []bool{false, true} {
		for _, a := range r.Addresses {
			if a.Changed && slices.Contains(last, a.Address) == first {
				if err := host.DeleteAddress(a.Device, a.Address); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// find notes whether the device has an address, which is removed then, and with which bits.
func (a *addressState) find(given bool) error {
	has, there, err := host.FindAddress(a.Device, a.Address.Addr())
	if err != nil || !there {
		return err
	}
	if given && has != a.Address {
		return fmt.Errorf("device %s has %s, not %s: give the address as it is there, or without its prefix length", a.Device, has, a.Address)
	}
	a.Address, a.Changed = has, true
	return nil
}

// prefixes are several of them in words.
func prefixes(list []netip.Prefix) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}

// announce announces all addresses a number of times. One that cannot be announced does not
// keep others from it.
func (r *addressReport) announce(ctx context.Context, times int) error {
	var errs []error
	failed := map[netip.Addr]bool{}
	for n := range times {
		if len(failed) == len(r.Addresses) {
			break
		}
		if n > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(append(errs, fmt.Errorf("%w: the addresses are on the device, and were announced %s", errInterrupted, plural(n, "time", "times")))...)
			case <-time.After(announceInterval):
			}
		}
		for i := range r.Addresses {
			a := &r.Addresses[i]
			if failed[a.Address.Addr()] {
				continue
			}
			if err := host.Announce(a.Device, a.Address.Addr()); err != nil {
				failed[a.Address.Addr()] = true
				errs = append(errs, err)
				continue
			}
			a.Announced++
		}
	}
	return errors.Join(errs...)
}

func (r addressReport) print(w io.Writer, changed, unchanged string) error {
	for _, a := range r.Addresses {
		what := unchanged
		if a.Changed {
			what = changed
		}
		fmt.Fprintf(w, "%s on %s: %s", a.Address, a.Device, what)
		if a.Announced > 0 {
			fmt.Fprintf(w, ", announced %s", plural(a.Announced, "time", "times"))
		}
		fmt.Fprintln(w)
	}
	return nil
}
