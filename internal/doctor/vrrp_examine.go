// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/doctor/ruleset"
)

const vrrpProtocol = 112

// way is that of advertisements of a router, with another director if one is known.
type way struct {
	incoming, outgoing ruleset.Packet
}

// ways are those of all routers.
func (v *VRRP) ways() (all []way) {
	for i := range v.Setup.Groups {
		g := &v.Setup.Groups[i]
		status := v.group(g.Name)
		for n := range g.Routers {
			r := &g.Routers[n]
			own, others := r.Source, r.Peers
			group := vrrp.Group4
			if r.IPv6() {
				group = vrrp.Group6
			}
			if status != nil && n < len(status.Routers) {
				if a, err := netip.ParseAddr(status.Routers[n].Source); err == nil {
					own = a
				}
				if a, err := netip.ParseAddr(status.Routers[n].Master); err == nil && len(others) == 0 {
					others = []netip.Addr{a}
				}
			}
			if !own.IsValid() {
				own = v.device(r.Device).source(r.IPv6())
			}
			if len(others) == 0 {
				others = []netip.Addr{{}} // not known
			}
			for _, other := range others {
				in := ruleset.Packet{Device: r.Device, Source: other, To: group, Protocol: vrrpProtocol, Name: "vrrp", Hops: 255}
				out := in
				out.Out, out.Source = true, own
				if len(r.Peers) > 0 {
					in.To, out.To = own, other
				}
				if in.To.IsValid() {
					all = append(all, way{in, out})
				}
			}
		}
	}
	return all
}

// source is the address that advertisements are sent from, if the configuration has none.
func (d *VRRPDevice) source(six bool) netip.Addr {
	for _, a := range d.Addresses {
		if a.Is6() == six && (!six || a.IsLinkLocalUnicast()) {
			return a
		}
	}
	return netip.Addr{}
}

// advertises reports whether advertisements of IPv4 are awaited by the device.
func (d *VRRPDevice) advertises(s *setup.Setup) bool {
	return slices.ContainsFunc(s.Groups, func(g setup.Group) bool {
		return slices.ContainsFunc(g.Routers, func(r setup.Router) bool { return r.Device == d.Name && !r.IPv6() })
	})
}

func examineVRRP(r report, v *VRRP) {
	if v == nil {
		return
	}
	before := len(*r.all)
	if v.FileError != "" {
		r.problem("imbang check "+v.File, "%s", v.FileError)
	}
	v.examineProcess(r)
	v.examineSilent(r)
	if v.Setup != nil {
		for i := range v.Setup.Groups {
			g := &v.Setup.Groups[i]
			if status := v.group(g.Name); status != nil {
				examineGroup(r, g, status)
			}
		}
		for i := range v.Devices {
			v.examineDevice(r, &v.Devices[i])
		}
		v.examineRoutes(r)
		v.examineRules(r)
		if v.Keepalived != 0 {
			r.warn("systemctl disable --now keepalived", "keepalived runs too (process %d): with the same addresses or router identifiers both configure and announce them, and neither hears the other one", v.Keepalived)
		}
		if v.ClockFree {
			r.warn("timedatectl set-ntp true", "the clock is not synchronised: times in the logs of the directors cannot be compared")
		}
	}
	if len(*r.all) > before {
		return
	}
	var words []string
	for _, g := range v.Status.Groups {
		words = append(words, g.Name+" "+g.State)
	}
	r.ok("imbang vrrp runs: %s", strings.Join(words, ", "))
}

func (v *VRRP) examineProcess(r report) {
	s := v.Status
	switch {
	case v.StatusError != "":
		r.problem("systemctl status imbang-vrrp", "%s", v.StatusError)
		return
	case s == nil && v.Setup != nil:
		r.problem("systemctl enable --now imbang-vrrp", "%s has the section vrrp, and imbang vrrp does not run in this network namespace", v.File)
		return
	case s == nil:
		return
	}
	if v.Setup == nil && v.FileError == "" {
		r.warn("systemctl stop imbang-vrrp", "imbang vrrp runs, and %s has no section vrrp", v.File)
	}
	if s.ReloadError != "" {
		first, _, _ := strings.Cut(s.ReloadError, "\n")
		r.problem("imbang check "+s.Config+" && systemctl reload imbang-vrrp", "the last reload was refused: %s", first)
	}
	if s.NotRealTime != "" {
		first, _, _ := strings.Cut(s.NotRealTime, "\n")
		r.warn("systemctl restart imbang-vrrp", "the process is not real-time, and other processes can delay its advertisements (%s): run it by its unit, as root", first)
	}
}

// examineSilent finds addresses that a process left guarded, as it was killed.
func (v *VRRP) examineSilent(r report) {
	if len(v.Silent) == 0 {
		return
	}
	which := v.Silent[0].String()
	if more := len(v.Silent) - 1; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	remedy := "imbang vrrp clean"
	if v.Setup != nil {
		remedy = "systemctl start imbang-vrrp, or imbang vrrp clean"
	}
	r.problem(remedy, "the data plane guards %s without a lease, and imbang vrrp does not run: this host does not answer ARP requests and neighbour solicitations for what it guards", which)
}

// refusals are what to do about advertisements that are refused, by reason.
var refusals = map[vrrp.Reason]string{
	vrrp.ReasonVersion:     "another version of VRRP: keepalived needs vrrp_version 3 in global_defs",
	vrrp.ReasonDestination: "multicast where peers are configured, or unicast where none are: configure the same on all directors",
	vrrp.ReasonHopLimit:    "a TTL below 255: they came through a router",
	vrrp.ReasonChecksum:    "a wrong checksum",
	vrrp.ReasonInterval:    "an interval of 0",
}

func examineGroup(r report, g *setup.Group, s *process.Group) {
	for _, fault := range s.Faults {
		r.problem("imbang vrrp status", "group %s is in fault: %s", g.Name, fault)
	}
	if s.SendError != "" {
		r.problem("imbang vrrp status", "group %s cannot send advertisements: %s", g.Name, s.SendError)
	}
	// A master that is preempted advertises once more, and is counted by the next one.
	if n := s.Counts.OtherMasters; n > s.Counts.Became {
		r.warn("imbang vrrp status (on each director)", "group %s: another master was seen %d times while this director was master: advertisements were lost between the directors", g.Name, n)
	}
	if n := s.Counts.Stalls; n > 0 {
		r.warn("journalctl -u imbang-vrrp", "group %s: the process or the host stood still %d times", g.Name, n)
	}
	if n := s.Counts.Strangers; n > 0 {
		r.warn("imbang vrrp status", "group %s: %d advertisements came from directors that are not peers", g.Name, n)
	}
	for _, reason := range vrrp.Reasons() {
		i := slices.IndexFunc(s.Refused, func(o process.Refused) bool { return o.Reason == reason.String() && o.Count > 0 })
		if i < 0 {
			continue
		}
		why := refusals[reason]
		if why == "" {
			why = reason.String()
		}
		r.warn("imbang vrrp status", "group %s: %d advertisements were refused: %s", g.Name, s.Refused[i].Count, why)
	}
}

func (v *VRRP) examineDevice(r report, d *VRRPDevice) {
	if d.Missing {
		r.problem("ip link", "there is no device %s, and groups with addresses on it are in fault", d.Name)
	}
	var network, single netip.Prefix // that move to it
	for i := range v.Setup.Groups {
		for _, a := range v.Setup.Groups[i].AllAddresses() {
			switch {
			case a.Device != d.Name || !a.Prefix.Addr().Is4():
			case a.Prefix.IsSingleIP():
				single = a.Prefix
			default:
				network = a.Prefix
			}
		}
	}
	if network.IsValid() && !d.Promote && !d.Missing {
		r.warn(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.promote_secondaries=1", d.Name),
			"promote_secondaries is off on %s: Linux removes the other addresses of a network with its first one, such as %s, and they are missing until they are added again", d.Name, network)
	}
	switch {
	case d.ARPIgnore == 8 && (network.IsValid() || single.IsValid()):
		r.problem(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.all.arp_ignore=1", d.Name), "arp_ignore is 8 on %s: no request for an address that moves is answered", d.Name)
	case d.ARPIgnore == 2 && single.IsValid():
		r.problem(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.all.arp_ignore=1", d.Name),
			"arp_ignore is 2 on %s: requests for %s, which has no network, are not answered", d.Name, single.Addr())
	}
}

// examineRoutes finds advertisements that a strict rp_filter drops.
func (v *VRRP) examineRoutes(r report) {
	seen := map[string]bool{}
	for i := range v.Devices {
		d := &v.Devices[i]
		if len(d.Astray) > 0 && d.advertises(v.Setup) {
			v.examineAstray(r, d)
			seen[d.Name] = true
		}
	}
	for _, w := range v.ways() {
		p := w.incoming
		by, known := v.Routes[p.Source]
		if !known || by == p.Device || v.device(p.Device).ReversePath != 1 || seen[p.Device] {
			continue
		}
		seen[p.Device] = true
		r.problem(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2", p.Device),
			"rp_filter is strict on %s, and the route to the other director, %s, is by %s: its advertisements are dropped", p.Device, p.Source, by)
	}
}

// examineAstray finds the same where the other director is not known, as nothing of it was heard.
func (v *VRRP) examineAstray(r report, d *VRRPDevice) {
	for _, a := range d.Astray {
		to := "its network " + a.To.String()
		if a.To.IsSingleIP() {
			to = "the other director, " + a.To.Addr().String() + ","
		}
		r.problem(fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2", d.Name),
			"rp_filter is strict on %s, and the route to %s is by %s: advertisements from there are dropped", d.Name, to, a.By)
	}
}

func (v *VRRP) examineRules(r report) {
	if v.RulesError != "" {
		r.warn("nft -j list ruleset", "whether the firewall drops advertisements is not known: %s", v.RulesError)
	}
	if v.LegacyRules {
		r.warn("iptables-legacy -S", "iptables-legacy has rules, which are not examined: they have to accept protocol 112")
	}
	if v.Rules == nil {
		return
	}
	seen := map[string]bool{}
	for _, w := range v.ways() {
		for _, p := range []ruleset.Packet{w.incoming, w.outgoing} {
			verdict := v.Rules.Apply(p)
			way := "come in by " + p.Device
			if p.Out {
				way = "go out by " + p.Device
			}
			if p.To.Is6() {
				way += ", of IPv6,"
			}
			remedy := fmt.Sprintf("nft insert rule %s %s %s meta l4proto 112 accept", verdict.Family, verdict.Table, verdict.Chain)
			text := verdict.String() + way
			switch {
			case verdict.Effect == ruleset.Passes || seen[text]:
			case verdict.Effect == ruleset.Dropped:
				r.problem(remedy, "the firewall drops advertisements (protocol 112) that %s (%s)", way, verdict)
			default:
				r.warn(remedy, "the firewall may drop advertisements (protocol 112) that %s: it depends on what is not known here (%s)", way, verdict)
			}
			seen[text] = true
		}
	}
}
