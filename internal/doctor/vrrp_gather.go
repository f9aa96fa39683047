// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/director"
	"imbang/internal/doctor/ruleset"
	"imbang/internal/host"
)

// gatherVRRP collects what there is of VRRP: of a process, and of the configuration that the user
// or, if that is empty, it names, or that another process uses. It is nil if there is neither a process nor a section.
// other is the other director of a pair, if it is known.
func gatherVRRP(file, used string, other netip.Addr) (*VRRP, error) {
	v := &VRRP{File: file, Routes: map[netip.Addr]string{}}
	dir, err := place.VRRPDir()
	if err != nil {
		return nil, err
	}
	if v.Status, err = process.Ask(dir); err != nil && !errors.Is(err, process.ErrNone) {
		v.StatusError = err.Error()
	}
	if v.Status == nil && v.StatusError == "" {
		if v.Silent, err = silentAddresses(); err != nil {
			return nil, err
		}
	}
	if v.File == "" && v.Status != nil {
		v.File = fileOf(v.Status.PID, v.Status.Config)
	}
	v.File = cmp.Or(v.File, used)
	named := v.File != ""
	v.File = cmp.Or(v.File, config.DefaultFile)
	c, err := config.Load(v.File)
	switch {
	case err == nil:
		v.Setup = c.VRRP
	case named || !errors.Is(err, os.ErrNotExist):
		v.FileError, _, _ = strings.Cut(err.Error(), "\n")
	}
	if v.Setup == nil {
		if v.Status == nil && v.StatusError == "" && v.FileError == "" && len(v.Silent) == 0 {
			return nil, nil
		}
		return v, nil
	}
	v.gatherDevices()
	if err := v.gatherRoutes(); err != nil {
		return nil, err
	}
	if err := v.gatherAstray(other); err != nil {
		return nil, err
	}
	v.gatherRules()
	v.Keepalived = processHere("keepalived")
	var clock unix.Timex
	state, err := unix.Adjtimex(&clock) // without modes it only reads
	v.ClockFree = err == nil && (state == unix.TIME_ERROR || clock.Status&unix.STA_UNSYNC != 0)
	return v, nil
}

// silentAddresses are those that the data plane guards without a fresh lease. One of an earlier
// version, which cannot, guards none.
func silentAddresses() (silent []netip.Addr, err error) {
	f, err := director.OpenFailover()
	if err != nil {
		return nil, nil //nolint:nilerr // no director, or one that guards nothing
	}
	defer f.Close()
	now, err := director.BootTime()
	if err != nil {
		return nil, err
	}
	guarded, err := f.Guarded()
	if err != nil {
		return nil, err
	}
	for a, until := range guarded {
		if until <= now {
			silent = append(silent, a)
		}
	}
	slices.SortFunc(silent, netip.Addr.Compare)
	return silent, nil
}

func (v *VRRP) gatherDevices() {
	var names []string
	for i := range v.Setup.Groups {
		for _, a := range v.Setup.Groups[i].AllAddresses() {
			names = append(names, a.Device)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d := VRRPDevice{Name: name}
		i, err := net.InterfaceByName(name)
		if d.Missing = err != nil; d.Missing {
			name = "default" // what it will have
		} else if all, err := i.Addrs(); err == nil {
			for _, a := range all {
				if p, err := netip.ParsePrefix(a.String()); err == nil {
					d.Addresses = append(d.Addresses, p.Addr())
					if p.Addr().Is4() && !p.IsSingleIP() { // rp_filter is IPv4's alone
						d.networks = append(d.networks, p)
					}
				}
			}
		}
		of := func(dev, key string) int { return number(sysctl("net/ipv4/conf/" + dev + "/" + key)) }
		d.Promote = of(name, "promote_secondaries") != 0 || of("all", "promote_secondaries") != 0
		d.ReversePath = max(of(name, "rp_filter"), of("all", "rp_filter"))
		d.ARPIgnore = max(of(name, "arp_ignore"), of("all", "arp_ignore"))
		v.Devices = append(v.Devices, d)
	}
}

// processHere finds the first process of a name in this network namespace; 0: there is none.
func processHere(name string) int {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return 0
	}
	all, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) != name {
			continue
		}
		dir := filepath.Dir(path)
		if its, err := os.Readlink(filepath.Join(dir, "ns/net")); err == nil && its == here {
			return number(filepath.Base(dir))
		}
	}
	return 0
}

// gatherAstray asks by which devices the host would send to the networks of a device, and to the
// other director. With a strict rp_filter nothing is heard from there, so that the process does
// not know of another director.
func (v *VRRP) gatherAstray(other netip.Addr) error {
	for i := range v.Devices {
		d := &v.Devices[i]
		for _, own := range d.networks {
			if d.ReversePath != 1 {
				continue
			}
			to := netip.PrefixFrom(own.Addr().Next(), own.Bits())
			if !own.Contains(to.Addr()) {
				to = netip.PrefixFrom(own.Addr().Prev(), own.Bits())
			}
			if own.Contains(other) {
				to = netip.PrefixFrom(other, other.BitLen())
			}
			r, err := host.ReachOf(to.Addr())
			if err != nil {
				return err
			}
			one := Astray{To: to.Masked(), By: r.Device}
			if r.Route == host.UnicastRoute && r.Device != d.Name && !slices.Contains(d.Astray, one) {
				d.Astray = append(d.Astray, one)
			}
		}
	}
	return nil
}

// gatherRoutes asks by which devices the host would send to the other directors.
func (v *VRRP) gatherRoutes() error {
	for _, w := range v.ways() {
		a := w.incoming.Source
		if !a.Is4() { // rp_filter is IPv4's alone
			continue
		}
		r, err := host.ReachOf(a)
		if err != nil {
			return err
		}
		if r.Route == host.UnicastRoute {
			v.Routes[a] = r.Device
		}
	}
	return nil
}

// nftPatience is how long nft may take.
const nftPatience = 5 * time.Second

func (v *VRRP) gatherRules() {
	names, _ := os.ReadFile("/proc/net/ip_tables_names")
	names6, _ := os.ReadFile("/proc/net/ip6_tables_names")
	v.LegacyRules = strings.Contains(string(names)+string(names6), "filter")
	ctx, cancel := context.WithTimeout(context.Background(), nftPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nft", "-j", "list", "ruleset").Output()
	if errors.Is(err, exec.ErrNotFound) {
		if _, err := os.Stat("/sys/module/nf_tables"); err == nil {
			v.RulesError = "the program nft is not installed (package nftables)"
		}
		return
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		if text := string(ended.Stderr); strings.Contains(text, "not supported") { // a kernel without it
			return
		}
		err = errors.New("nft: " + strings.TrimSpace(string(ended.Stderr)))
	}
	if err == nil {
		v.Rules, err = ruleset.Parse(out)
	}
	if err != nil {
		v.RulesError, _, _ = strings.Cut(err.Error(), "\n")
	}
}
