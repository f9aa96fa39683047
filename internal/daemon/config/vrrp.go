// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// Defaults of scripts that are tracked.
const (
	defaultTrackInterval = time.Second
	defaultTrackCount    = 1 // of rise and fall
	defaultPriority      = 100
	maxWeight            = 253 // as keepalived
	defaultGrace         = 3 * time.Second
	defaultMerge         = 1500 * time.Millisecond // of a pair: a healed split has one master within 2 s
)

// Bounds of times in which packets are not answered, or two directors are masters.
const (
	maxGrace = time.Minute
	maxMerge = time.Minute
)

// vrrp enters the groups. Whether their devices are there is not looked at: a group waits
// for its own.
func (c *checker) vrrp(d *vrrpDoc) {
	if d == nil {
		return
	}
	out := &setup.Setup{Grace: c.bounded("vrrp.grace", d.Grace, defaultGrace, maxGrace)}
	for _, name := range slices.Sorted(maps.Keys(d.Scripts)) {
		if !nameForm().MatchString(name) {
			c.refuse("vrrp.scripts", "%q: %s", name, wantName)
			continue
		}
		doc := d.Scripts[name]
		out.Scripts = append(out.Scripts, c.trackScript("vrrp.scripts."+name, name, &doc))
	}
	if len(d.Groups) == 0 {
		c.refuse("vrrp", "has no groups: write what moves between the directors under groups, or remove the section")
	}
	v := vrrpChecker{checker: c, scripts: d.Scripts, names: map[string]string{}, routers: map[string]string{}, addresses: map[vrrp.Address]string{}}
	for i := range d.Groups {
		out.Groups = append(out.Groups, v.group("vrrp.groups"+indexed(i), &d.Groups[i]))
	}
	c.config.VRRP = out
}

// bounded is a duration of 0 to a maximum.
func (c *checker) bounded(at, text string, without, most time.Duration) time.Duration {
	v := c.duration(at, text, 0, without)
	if v > most {
		c.refuse(at, "%s is out of range: want at most %s", text, most)
	}
	return v
}

// trackDirector enters what groups require of the director. All services are known then,
// those of included files, too.
func (c *checker) trackDirector(d *vrrpDoc) {
	if d != nil {
		c.config.VRRP.Servers = c.serverAddresses()
	}
	if d == nil || d.TrackDirector != nil && !*d.TrackDirector || d.TrackDirector == nil && len(c.config.Services) == 0 {
		return
	}
	out := &setup.Director{}
	if at := c.config.Director; at != nil {
		out.Devices = slices.Compact([]string{at.ClientDevice, at.ServerDevice})
	}
	c.config.VRRP.Director = out
}

// serverAddresses are those of all real servers, each once.
func (c *checker) serverAddresses() (all []netip.Addr) {
	for i := range c.config.Services {
		for j := range c.config.Services[i].Servers {
			all = append(all, c.config.Services[i].Servers[j].AddrPort().Addr())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// isPair reports whether connections are replicated in both directions.
func isPair(r *replicate.Config) bool { return r != nil && r.Role == replicate.RolePair }

func (c *checker) trackScript(at, name string, d *vrrpScriptDoc) setup.Script {
	s := setup.Script{Name: name, Command: d.Command, User: cmp.Or(d.User, c.config.Daemon.ScriptUser), Rise: defaultTrackCount, Fall: defaultTrackCount}
	if len(d.Command) == 0 {
		c.refuse(at+".command", "missing: want a program with its arguments, such as [/usr/local/bin/check]")
	} else {
		c.program(at+".command", d.Command)
	}
	s.Interval = c.duration(at+".interval", d.Interval, 10*time.Millisecond, defaultTrackInterval)
	s.Timeout = c.duration(at+".timeout", d.Timeout, time.Millisecond, s.Interval)
	if s.Timeout > s.Interval {
		c.refuse(at+".timeout", "%s is longer than the interval of %s: runs of a script do not overlap", d.Timeout, s.Interval)
	}
	if c.tree.Has(at + ".rise") {
		s.Rise = c.between(at+".rise", d.Rise, 1, 1000)
	}
	if c.tree.Has(at + ".fall") {
		s.Fall = c.between(at+".fall", d.Fall, 1, 1000)
	}
	s.Weight = c.between(at+".weight", d.Weight, -maxWeight, maxWeight)
	return s
}

// vrrpChecker also has what the groups before have.
type vrrpChecker struct {
	*checker
	scripts   map[string]vrrpScriptDoc
	names     map[string]string       // of groups, to their places
	routers   map[string]string       // by device, identifier and family
	addresses map[vrrp.Address]string // that move, link-local ones by device
}

func (c *vrrpChecker) group(at string, d *vrrpGroupDoc) setup.Group {
	before := len(c.mistakes)
	g := setup.Group{Name: d.Name, Priority: defaultPriority, NoPreempt: d.Preempt != nil && !*d.Preempt, Interval: time.Second}
	if !nameForm().MatchString(d.Name) {
		c.refuse(at+".name", "%q: %s", d.Name, wantName)
	} else if first, twice := c.names[d.Name]; twice {
		c.refuse(at+".name", "%q is the name of another group (%s): rename one", d.Name, first)
	}
	c.names[d.Name] = c.place(at)
	if c.tree.Has(at + ".priority") {
		g.Priority = uint8(c.between(at+".priority", d.Priority, 1, vrrp.PriorityOwner))
	}
	g.Interval = c.duration(at+".interval", d.Interval, 0, time.Second)
	if g.Interval < vrrp.MinInterval || g.Interval > vrrp.MaxInterval || g.Interval%vrrp.MinInterval != 0 {
		c.refuse(at+".interval", "%s: want a multiple of 10 ms, 10 ms to 40.95 s, as the messages have it", d.Interval)
	}
	g.PreemptDelay = c.duration(at+".preempt_delay", d.PreemptDelay, 0, 0)
	if g.PreemptDelay > 0 && g.NoPreempt {
		c.refuse(at+".preempt_delay", "has no effect beside preempt: false: remove one of the two")
	}
	if g.Priority == 255 && g.NoPreempt {
		c.warn(at+".preempt", "priority 255 preempts all the same (RFC 9568, 6.1): write a priority of 254 or less, or remove preempt: false")
	}
	g.Hold = c.duration(at+".hold", d.Hold, 0, 0)
	pair := isPair(c.config.Replication)
	g.AwaitSync = pair
	if d.AwaitSync != nil {
		g.AwaitSync = *d.AwaitSync
	}
	merge := time.Duration(0)
	if pair {
		merge = defaultMerge
	}
	g.Merge = c.bounded(at+".merge", d.Merge, merge, maxMerge)
	g.PlainChecksum = c.oneOf(at+".checksum", d.Checksum, "pseudo-header", "plain") == "plain"
	g.Announcements = 5
	if c.tree.Has(at + ".announcements") {
		g.Announcements = c.between(at+".announcements", d.Announcements, 1, 100)
	}
	g.AnnounceAgain = c.duration(at+".announce_again", d.AnnounceAgain, 10*time.Millisecond, 5*time.Second)
	g.AnnounceEvery = c.duration(at+".announce_every", d.AnnounceEvery, time.Second, time.Minute)
	if len(d.Routers) == 0 {
		c.refuse(at, "has no routers: want at least one, with device, id and addresses")
	}
	for i := range d.Routers {
		g.Routers = append(g.Routers, c.router(at+".routers"+indexed(i), &d.Routers[i]))
	}
	g.Pair = pair && len(c.config.Replication.To) == 1 ||
		!slices.ContainsFunc(g.Routers, func(r setup.Router) bool { return len(r.Peers) != 1 })
	for i, a := range d.Addresses {
		g.Addresses = append(g.Addresses, c.moving(at+".addresses"+indexed(i), a))
	}
	c.tracked(at, d, &g)
	g.Notify = c.command(at+".notify", d.Notify)
	g.NotifyStates = map[vrrp.State][]string{
		vrrp.Master: c.command(at+".notify_master", d.NotifyMaster), vrrp.Backup: c.command(at+".notify_backup", d.NotifyBackup),
		vrrp.Fault: c.command(at+".notify_fault", d.NotifyFault), vrrp.Initialize: c.command(at+".notify_stop", d.NotifyStop),
	}
	if len(c.mistakes) > before {
		return g
	}
	if _, err := vrrp.New(g.Machine(g.Priority, make([]netip.Addr, len(g.Routers)))); err != nil {
		c.refuse(at, "%v", err)
	}
	return g
}

func (c *vrrpChecker) deviceName(at, name string) {
	if name == "" || len(name) > maxDeviceName {
		c.refuse(at, "%q: want a network device, such as eth0", name)
	}
}

// moving is an address that moves, with its device.
func (c *vrrpChecker) moving(at string, a vrrpAddressDoc) vrrp.Address {
	p := c.address(at, addressDoc(a), "").Prefix
	if p.IsValid() {
		c.once(at+".address", a.Device, p.Addr())
	}
	c.deviceName(at+".device", a.Device)
	return vrrp.Address{Device: a.Device, Prefix: p}
}

// once refuses an address that moves already.
func (c *vrrpChecker) once(at, device string, a netip.Addr) {
	key := vrrp.Address{Prefix: netip.PrefixFrom(a, 0)}
	if a.IsLinkLocalUnicast() {
		key.Device = device
	}
	if first, twice := c.addresses[key]; twice {
		c.refuse(at, "%s is given twice (%s): remove one", a, first)
	}
	c.addresses[key] = c.place(at)
}

func (c *vrrpChecker) router(at string, d *vrrpRouterDoc) setup.Router {
	r := setup.Router{Device: d.Device}
	c.deviceName(at+".device", d.Device)
	r.ID = uint8(c.between(at+".id", d.ID, 1, 255))
	c.routerAddresses(at, d, &r)
	if len(r.All()) == 0 {
		return r
	}
	key := strings.Join([]string{d.Device, indexed(d.ID), map[bool]string{true: "IPv6", false: "IPv4"}[r.IPv6()]}, " ")
	if first, twice := c.routers[key]; twice {
		c.refuse(at+".id", "%d on %s is another router already (%s): want another id", d.ID, d.Device, first)
	}
	c.routers[key] = c.place(at)
	if d.Source != "" || c.tree.Has(at+".source") {
		r.Source = c.sender(at+".source", d.Source, r.IPv6())
	}
	for i, text := range d.Peers {
		to := at + ".peers" + indexed(i)
		peer := c.sender(to, text, r.IPv6())
		if peer.IsValid() && (peer == r.Source || slices.Contains(r.Peers, peer)) {
			c.refuse(to, "%s is given twice, or is the source: want the addresses of the other directors", peer)
		}
		r.Peers = append(r.Peers, peer)
	}
	return r
}

// routerAddresses enters those that a router advertises.
func (c *vrrpChecker) routerAddresses(at string, d *vrrpRouterDoc, r *setup.Router) {
	if len(d.Addresses)+len(d.Elsewhere) == 0 {
		c.refuse(at, "has no addresses: want at least one, such as 10.20.0.1/24")
	}
	alike := func(to string, a netip.Addr) bool {
		all := r.All()
		if len(all) > 0 && a.Is6() != r.IPv6() {
			c.refuse(to, "%s is not of the family of %s: a router has one family, and the other one needs a router of its own", a, all[0].Prefix.Addr())
			return false
		}
		return true
	}
	for i, text := range d.Addresses {
		to := at + ".addresses" + indexed(i)
		p, problem := parseAddress(text)
		if problem != "" {
			c.refuse(to, "%s", problem)
			continue
		}
		c.once(to, d.Device, p.Addr())
		if alike(to, p.Addr()) {
			r.Addresses = append(r.Addresses, p)
		}
	}
	for i, a := range d.Elsewhere {
		to := at + ".elsewhere" + indexed(i)
		one := c.moving(to, a)
		if one.Prefix.IsValid() && alike(to+".address", one.Prefix.Addr()) {
			r.Elsewhere = append(r.Elsewhere, one)
		}
	}
}

// sender is an address that a director sends from.
func (c *vrrpChecker) sender(at, text string, six bool) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is6() != six || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		c.refuse(at, "%q: want an %s address of a director", text, map[bool]string{true: "IPv6", false: "IPv4"}[six])
		return netip.Addr{}
	}
	return a
}

func (c *vrrpChecker) tracked(at string, d *vrrpGroupDoc, g *setup.Group) {
	for i, t := range d.TrackInterfaces {
		to := at + ".track_interfaces" + indexed(i)
		c.deviceName(to+".device", t.Device)
		if slices.ContainsFunc(g.Devices, func(o setup.Device) bool { return o.Name == t.Device }) {
			c.refuse(to+".device", "%q is given twice: remove one", t.Device)
		}
		g.Devices = append(g.Devices, setup.Device{Name: t.Device, Weight: c.between(to+".weight", t.Weight, -maxWeight, maxWeight)})
	}
	for i, name := range d.TrackScripts {
		to := at + ".track_scripts" + indexed(i)
		if _, known := c.scripts[name]; !known {
			c.refuse(to, "there is no script %q: write it under vrrp.scripts", name)
		}
		if slices.Contains(g.Scripts, name) {
			c.refuse(to, "%q is given twice: remove one", name)
		}
		g.Scripts = append(g.Scripts, name)
	}
}
