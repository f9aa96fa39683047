// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// shown is how many findings of one kind a report lists.
const shown = 10

func examineKernel(r report, f Facts) {
	for _, m := range f.Missing {
		r.problem("", "Linux %s has no %s", f.Release, m)
	}
	if len(f.Missing) == 0 {
		r.ok("Linux %s has what the director needs", f.Release)
	}
	if f.JITOff {
		r.problem("sysctl -w net.core.bpf_jit_enable=1", "BPF programs are interpreted, many times slower")
	}
}

func examineDirector(r report, f Facts) {
	if !f.Loaded {
		r.warn("imbang attach --client-dev DEV --server-dev DEV", "none is loaded in this network namespace")
		return
	}
	if len(f.Attachments) == 0 {
		r.problem("imbang attach --client-dev DEV --server-dev DEV", "it is loaded, but on no device")
		return
	}
	for _, side := range f.Gone {
		if f.DeviceAlarm != "" {
			r.problem("ip -br link", "the %ss' device it was attached to is gone; imbang run waits for it: %s", side, f.DeviceAlarm)
			continue
		}
		r.problem(f.attachAgain(""), "the %ss' device it was attached to is gone", side)
	}
	r.ok("it is attached in mode %s to %s", f.mode(), strings.Join(attachedTo(f), " and "))
	// A connection of IPv6 takes the room of two.
	switch n, room := f.Connections[0]+2*f.Connections[1], uint64(f.Capacity); {
	case room == 0:
	case n >= room:
		r.problem("imbang settings drop_entry=1", "the connection table is full (%d of IPv4, %d of IPv6): new ones are dropped%s", f.Connections[0], f.Connections[1], moreRoom(room))
	case n*10 >= room*8:
		r.warn("imbang settings drop_entry=1", "%d%% of the connection table is in use (%d connections of IPv4, %d of IPv6)%s", n*100/room, f.Connections[0], f.Connections[1], moreRoom(room))
	}
}

// moreRoom says how a director gets room for more connections, if any can have it.
func moreRoom(room uint64) string {
	if room >= director.MaxConnections {
		return ""
	}
	return fmt.Sprintf("; more room needs imbang detach, then attach --max-connections %d", min(2*room, director.MaxConnections))
}

func (f Facts) mode() director.Mode {
	switch f.xdp() {
	case director.HookXDP:
		return director.ModeXDP
	case director.HookXDPGeneric:
		return director.ModeXDPGeneric
	}
	return director.ModeTC
}

func attachedTo(f Facts) (names []string) {
	for _, a := range f.Attachments {
		if !slices.Contains(names, a.Device) {
			names = append(names, a.Device)
		}
	}
	return names
}

func examineForwarding(r report, f Facts) {
	on := true
	if last := f.HairpinsTo; last != 0 && f.FirstPort <= last {
		on = false
		r.problem(fmt.Sprintf("sysctl -w net.ipv4.ip_local_port_range='%d 60999'", last+1),
			"sockets get ports from %d on and hairpins up to %d: replies to one may be taken for the other's", f.FirstPort, last)
	}
	if f.uses(model.IPv4) && !f.IPv4Forwarding {
		on = false
		r.problem("sysctl -w net.ipv4.ip_forward=1", "IPv4 is not forwarded, so the kernel has no route to servers")
	}
	if f.uses(model.IPv6) && !f.IPv6Forwarding {
		on = false
		r.problem("sysctl -w net.ipv6.conf.all.forwarding=1", "IPv6 is not forwarded, so the kernel has no route to servers")
	}
	for _, d := range f.Devices {
		if f.uses(model.IPv4) && f.IPv4Forwarding && !d.Forwarding[0] {
			on = false
			r.problem(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.forwarding=1", d.Name), "what comes in by %s is not forwarded", d.Name)
		}
		if f.uses(model.IPv6) && f.IPv6Forwarding && !d.Forwarding[1] {
			on = false
			r.problem(fmt.Sprintf("sysctl -w net.ipv6.conf.%s.forwarding=1", d.Name), "IPv6 that comes in by %s is not forwarded", d.Name)
		}
	}
	if on {
		r.ok("it is on")
	}
}

func examineFirewall(r report, f Facts) {
	if f.Conntrack {
		r.ok("balanced packets bypass connection tracking and the forward chain: rules there do not filter them")
		return
	}
	r.ok("balanced packets bypass the forward chain: rules there do not filter them")
}

func examineDevice(r report, f Facts, d Device) {
	before := len(*r.all)
	if d.Down {
		r.problem("ip link set "+d.Name+" up", "it is down")
	}
	if d.LRO {
		r.problem("ethtool -K "+d.Name+" lro off", "LRO makes packets that cannot be forwarded")
	}
	if d.ReversePath == 1 {
		r.warn(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2 net.ipv4.conf.all.rp_filter=2", d.Name),
			"rp_filter is strict: the stack drops what it gets by another way than it would send by, such as fragments and ICMP of asymmetric routes")
	}
	if d.Client && d.Server && d.Redirects {
		r.warn(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.send_redirects=0 net.ipv4.conf.all.send_redirects=0", d.Name),
			"clients and servers are on one device, and the stack sends redirects for what it forwards itself")
	}
	examineOffloads(r, f, d)
	examineQueues(r, f, d)
	examineXDP(r, f, d)
	if len(*r.all) == before {
		r.ok("nothing to change")
	}
}

func examineOffloads(r report, f Facts, d Device) {
	if f.xdp() == director.HookXDP {
		return // packets go one by one
	}
	if !d.GRO && !d.Veth {
		r.warn("ethtool -K "+d.Name+" gro on", "GRO is off: each packet of bulk transfers is handled by itself")
	}
	if !d.TSO {
		r.warn("ethtool -K "+d.Name+" tso on", "TSO is off: what GRO puts together is cut up by the CPU")
	}
}

func examineQueues(r report, f Facts, d Device) {
	if d.Queues.Now != 1 || f.CPUs < 2 || d.Steering {
		return
	}
	if d.Queues.Most > 1 {
		n := min(d.Queues.Most, f.CPUs)
		remedy := fmt.Sprintf("ethtool -L %s combined %d", d.Name, n)
		if d.Veth {
			remedy = fmt.Sprintf("ethtool -L %s rx %d tx %d", d.Name, n, n)
		}
		r.warn(remedy, "one queue for %d CPUs: one of them has all the work", f.CPUs)
		return
	}
	if !d.Veth { // whose packets are on their sender's CPU
		r.warn(fmt.Sprintf("echo %x > /sys/class/net/%s/queues/rx-0/rps_cpus", 1<<min(f.CPUs, 32)-1, d.Name), "one queue for %d CPUs, and the driver has no more: one of them has all the work", f.CPUs)
	}
}

// attachAgain is the command that attaches the director again, in a mode if one is named.
func (f Facts) attachAgain(mode string) string {
	if f.Attaches {
		first := ""
		if mode != "" {
			first = "set director.mode to " + mode + " in the configuration of imbang run, then "
		}
		return first + "systemctl stop imbang && imbang detach --keep-table && systemctl start imbang"
	}
	text := director.AttachAgain
	if mode != "" {
		text = strings.Replace(text, "imbang attach", "imbang attach --mode "+mode, 1)
	}
	if f.Daemon {
		text = strings.Replace(text, "--keep-table", "--keep-table --force", 1)
	}
	return text
}

func examineXDP(r report, f Facts, d Device) {
	switch {
	case f.xdp() == "":
		if d.NoXDP != "" {
			r.ok("no native XDP: %s", strings.TrimPrefix(d.NoXDP, d.Name+": "))
		} else if d.Veth {
			r.ok("native XDP is possible (--mode xdp), and bad for bulk transfers: it turns TSO of a veth off")
		} else {
			r.ok("native XDP is possible (--mode xdp)")
		}
		return
	case d.Tags.Hidden && d.Tags.VLAN != "":
		remedy := "ethtool -K " + d.Name + " rxvlan off"
		if d.Veth {
			remedy = f.attachAgain(string(director.ModeTC))
		}
		r.problem(remedy, "frames of its VLAN device %s are balanced as its own: XDP sees no VLAN tags", d.Tags.VLAN)
	case f.xdp() == director.HookXDP && d.NoXDP != "":
		r.problem(f.attachAgain(string(director.ModeTC)), "packets that XDP sends by it are lost (%s)", d.NoXDP)
	case d.OtherMAC:
		r.warn(f.attachAgain(""), "its hardware address changed since attach: XDP leaves every packet to tc")
	}
	if d.Veth {
		r.ok("veth: packets whose checksum is unfinished are left to tc (at the other end: ethtool -K PEER tx off)")
	} else if d.Tags.Hidden && d.Tags.VLAN == "" {
		r.warn("ethtool -K "+d.Name+" rxvlan off", "it takes VLAN tags off before XDP sees them: frames with a tag are balanced as if they had none")
	}
}

// overheads are what tunnels add to a packet [bytes], by type, of IPv4 outside.
var overheads = map[model.TunnelType]int{model.IPIP: 20, model.GRE: 24, model.GUE: 32}

func examineMTU(r report, f Facts) {
	client, server := 0, 0
	serverDev := ""
	for _, d := range f.Devices {
		if d.Client {
			client = d.MTU
		}
		if d.Server || (d.Client && len(f.Devices) == 1) {
			server, serverDev = d.MTU, d.Name
		}
	}
	if client == 0 || server == 0 {
		return
	}
	need := 0
	for _, s := range f.Services {
		for _, one := range s.Servers {
			if !one.Forward.Encapsulates() {
				continue
			}
			over := overheads[one.TunnelType]
			if one.Addr.Is6() {
				over += 20
			}
			need = max(need, over)
		}
	}
	switch {
	case server < client:
		r.warn(fmt.Sprintf("ip link set %s mtu %d", serverDev, client+need), "servers' device has %d, clients' %d: longer packets are cut, or refused by ICMP", server, client)
	case server < client+need:
		r.warn(fmt.Sprintf("ip link set %s mtu %d", serverDev, client+need), "tunnels add up to %d bytes and the servers' device takes %d: clients are told of %d by ICMP, which some networks filter", need, server, server-need)
	default:
		r.ok("%d towards clients, %d towards servers", client, server)
	}
}

const startDaemon = "systemctl start imbang"

func examineDaemon(r report, f Facts) {
	if f.NoDaemon == "" {
		return
	}
	down := slices.ContainsFunc(f.Services, func(s Service) bool {
		return slices.ContainsFunc(s.Servers, func(one Server) bool { return one.Health == model.Down })
	})
	if down {
		r.problem(startDaemon, "imbang run does not run: the servers of %s are not checked, and those that are down stay down", f.NoDaemon)
		return
	}
	r.warn(startDaemon, "imbang run does not run: the servers of %s are not checked", f.NoDaemon)
}

func examineServices(r report, f Facts) {
	if !f.Loaded {
		return
	}
	if f.ServicesMissing {
		r.problem("imbang reload", "the table lacks a service of the configuration that imbang run applied, or all of its servers, so clients are refused (imbang status names it)")
	} else if len(f.Services) == 0 {
		r.warn("imbang ipvsadm -A -t ADDRESS:PORT -s wlc", "there are none")
	}
	if len(f.Services) == 0 {
		return
	}
	without, remedy := 0, "imbang ipvsadm -Ln"
	if f.NoDaemon != "" {
		remedy = startDaemon
	}
	for _, s := range f.Services {
		if slices.ContainsFunc(s.Servers, usable) {
			continue
		}
		if without++; without <= shown {
			r.problem(remedy, "%s has no server that takes connections", s.Key)
		}
	}
	if without > shown {
		r.problem(remedy, "and %d more have none", without-shown)
	}
	own, others := f.addresses()
	if f.Backup {
		others = nil // the master has them
	}
	others = slices.DeleteFunc(others, func(s Service) bool { return f.VRRP.moves(s.Key.Addr) }) // imbang vrrp configures them, on the master
	for _, s := range others[:min(len(others), shown)] {
		a, and := s.Key.Addr, ""
		switch s.Route {
		case host.BlackholeRoute, host.UnreachableRoute, host.ProhibitRoute: // behind the data plane
			and = fmt.Sprintf(", and a route of type %s drops those for this machine itself, such as pings", s.Route)
		}
		r.warn(fmt.Sprintf("ip address add %s/%d dev lo", a, a.BitLen()), "%s is no address of this machine: packets for it come only if it is routed here%s. Unless another director has it", a, and)
	}
	if len(others) > shown {
		r.warn("", "nor are %d others", len(others)-shown)
	}
	if without == 0 {
		r.ok("%d, each with a server; %d of their addresses are this machine's", len(f.Services), len(own))
	}
}

func usable(s Server) bool { return s.EffectiveWeight() > 0 }

func examineServers(r report, f Facts) {
	bad, direct, total := 0, 0, 0
	complain := func(l Level, remedy, format string, args ...any) {
		if bad++; bad <= shown {
			r.add(l, remedy, format, args...)
		}
	}
	for _, s := range f.Services {
		for _, one := range s.Servers {
			total++
			if one.Forward.SameLink() && one.Route != host.LocalRoute {
				direct++
			}
			examineServer(complain, one)
		}
	}
	if bad > shown {
		r.problem("", "and %d more", bad-shown)
	}
	if direct > 0 {
		r.ok("%d by direct routing: each needs the virtual address on lo, and net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 first", direct)
	}
	if bad == 0 && total > 0 {
		r.ok("there is a route to each of %d", total)
	}
}

func examineServer(complain func(l Level, remedy, format string, args ...any), s Server) {
	switch {
	case s.Route == host.LocalRoute:
	case s.Route == host.NoRoute:
		complain(Problem, fmt.Sprintf("ip route add %s via ROUTER", s.Addr), "%s: there is no route to it", s.Addr)
	case s.Route != host.UnicastRoute:
		complain(Problem, fmt.Sprintf("ip route show table all match %s", s.Addr), "%s: the route to it is of type %s, so clients are refused", s.Addr, s.Route)
	case s.Forward.SameLink() && s.Router:
		complain(Problem, "imbang ipvsadm -e ... -i (a tunnel) or -m", "%s: direct routing to it leads through a router, which would send the packets back", s.Addr)
	case s.Neighbour == host.NeighbourSilent:
		complain(Problem, "ping -c 1 "+s.Addr.String(), "%s: no reply to requests for its hardware address, or its router's, on %s", s.Addr, s.Device)
	case s.Neighbour == host.NeighbourUnknown:
		complain(Warning, "ping -c 1 "+s.Addr.String(), "%s: its hardware address, or its router's, is not known yet on %s", s.Addr, s.Device)
	}
}
