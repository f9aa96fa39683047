// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// Gather collects the facts of the calling thread's network namespace. Without
// names of devices they are those that the director is attached to. Without the name of a
// configuration it is that of the process that has it: imbang vrrp for VRRP, imbang run or else
// imbang proxy for layer 7, each of the others if these do not run, or the usual one if none does.
func Gather(clientDev, serverDev, file string) (Facts, error) {
	if os.Geteuid() != 0 {
		return Facts{}, errors.New("not permitted: what the kernel can do, and the director, are root's to ask about; run it with sudo")
	}
	f := Facts{
		Release: release(), Missing: director.MissingFeatures(), JITOff: sysctl("net/core/bpf_jit_enable") == "0",
		IPv4Forwarding: sysctl("net/ipv4/ip_forward") == "1", IPv6Forwarding: sysctl("net/ipv6/conf/all/forwarding") == "1",
		Conntrack: sysctl("net/netfilter/nf_conntrack_count") != "", CPUs: runtime.NumCPU(),
	}
	d, err := director.Open()
	if err != nil && !errors.Is(err, director.ErrNotLoaded) {
		return f, err
	}
	f.Backup = isBackup()
	if err == nil {
		defer d.Close()
		if err := f.gatherDirector(d); err != nil {
			return f, err
		}
	}
	for _, a := range f.Attachments {
		if a.Role == "client" && clientDev == "" {
			clientDev = a.Device
		}
		if a.Role == "server" && serverDev == "" {
			serverDev = a.Device
		}
	}
	if err := f.gatherDevices(d, clientDev, serverDev); err != nil {
		return f, err
	}
	if f.Loaded {
		f.Sockets = gatherSockets(time.Sleep)
	}
	running := askDaemon()
	f.Pair = pairOf(running)
	f.ServicesMissing = running.alarm("service-missing") != ""
	proxy, err := askProxy()
	if err != nil {
		return f, err
	}
	f.Daemon, f.DeviceAlarm = running.runs(), running.alarm("device")
	if c, err := config.Load(running.file()); err == nil {
		f.Attaches = f.Daemon && c.Director != nil
	}
	if f.NoDaemon, err = running.missing(file); err != nil {
		return f, err
	}
	used := cmp.Or(running.file(), proxy.file())
	if f.VRRP, err = gatherVRRP(file, used, f.Pair.address()); err != nil {
		return f, err
	}
	f.Proxy = gatherProxy(proxy, cmp.Or(file, used), running, f.VRRP)
	return f, nil
}

// isBackup reports whether a backup role of either protocol runs in this network namespace.
// Without an answer it is taken for none: that only makes an advice longer.
func isBackup() bool {
	dir, err := place.Dir()
	if err != nil {
		return false
	}
	roles, err := running.List(dir)
	return err == nil && slices.ContainsFunc(roles, func(r running.Role) bool {
		return r.Role == "backup" || r.Replicates != nil && r.Replicates.As == "backup"
	})
}

func (f *Facts) gatherDirector(d *director.Director) error {
	st, err := d.Status()
	if err != nil {
		return err
	}
	f.Loaded, f.Attachments, f.Gone, f.Capacity = true, st.Attachments, st.Gone, st.Capacity.Connections
	if f.HairpinsTo, err = d.LastHairpinPort(); err != nil {
		return err
	}
	first, _, _ := strings.Cut(sysctl("net/ipv4/ip_local_port_range"), "\t")
	f.FirstPort = uint16(number(first))
	all, err := d.Services()
	if err != nil {
		return err
	}
	reaches := map[netip.Addr]host.Reach{}
	reach := func(a netip.Addr) (host.Reach, error) {
		if r, ok := reaches[a]; ok {
			return r, nil
		}
		r, err := host.ReachOf(a)
		reaches[a] = r
		return r, err
	}
	for _, s := range all {
		one := Service{ServiceStatus: s}
		if s.Key.Addr.IsValid() {
			r, err := reach(s.Key.Addr)
			if err != nil {
				return err
			}
			one.Route = r.Route
		}
		for _, server := range s.Servers {
			r, err := reach(server.Addr)
			if err != nil {
				return err
			}
			one.Servers = append(one.Servers, Server{server, r})
			family := 0
			if s.Key.Family == model.IPv6 {
				family = 1
			}
			f.Connections[family] += uint64(server.Active) + uint64(server.Inactive)
		}
		f.Services = append(f.Services, one)
	}
	return nil
}

func (f *Facts) gatherDevices(d *director.Director, clientDev, serverDev string) error {
	if clientDev == serverDev {
		serverDev = ""
	}
	for _, name := range []string{clientDev, serverDev} {
		if name == "" {
			continue
		}
		dev, err := gatherDevice(name, f.xdp() == director.HookXDP)
		if err != nil {
			return err
		}
		dev.Client = name == clientDev
		dev.Server = name == serverDev || serverDev == "" && len(f.Gone) == 0
		if d != nil {
			i, err := net.InterfaceByName(name)
			if err != nil {
				return fmt.Errorf("device %s: %w", name, err)
			}
			expects, err := d.ExpectsMAC(*i)
			if err != nil {
				return err
			}
			dev.OtherMAC = !expects
		}
		f.Devices = append(f.Devices, dev)
	}
	return nil
}

func gatherDevice(name string, attachedXDP bool) (Device, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return Device{}, fmt.Errorf("no such device %q in this network namespace (ip link shows them)", name)
	}
	d := Device{Name: name, MTU: i.MTU, Down: i.Flags&net.FlagUp == 0, Veth: director.IsVeth(name)}
	conf := func(family, key string) string { return sysctl("net/" + family + "/conf/" + name + "/" + key) }
	d.Forwarding = [2]bool{conf("ipv4", "forwarding") == "1", conf("ipv6", "forwarding") == "1"}
	// The kernel takes the greater one.
	d.ReversePath = max(number(conf("ipv4", "rp_filter")), number(sysctl("net/ipv4/conf/all/rp_filter")))
	d.Redirects = conf("ipv4", "send_redirects") == "1" || sysctl("net/ipv4/conf/all/send_redirects") == "1"
	for feature, on := range map[*host.Offload]*bool{&host.GRO: &d.GRO, &host.TSO: &d.TSO, &host.LRO: &d.LRO} {
		if *on, err = host.OffloadOn(name, *feature); err != nil && !errors.Is(err, host.ErrNoOffload) {
			return d, err
		}
	}
	d.Queues, _ = host.RxQueues(name)
	d.Steering = steering(name)
	if d.NoXDP, err = director.NoNativeXDP(name, attachedXDP); err != nil {
		return d, err
	}
	d.Tags, err = director.TagsOf(*i)
	return d, err
}

// steering reports whether RPS is on.
func steering(dev string) bool {
	files, _ := filepath.Glob("/sys/class/net/" + dev + "/queues/rx-*/rps_cpus")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.Trim(strings.TrimSpace(string(b)), "0,") != "" {
			return true
		}
	}
	return false
}

// sysctl is a setting's value; "" if the kernel has none of that name.
func sysctl(path string) string {
	b, err := os.ReadFile("/proc/sys/" + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // what is not there is 0
	return n
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
