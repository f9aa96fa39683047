// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"net/netip"
	"strings"
)

// vrrpScript is a script that groups track.
type vrrpScript struct {
	name string
	from place
	body []string // lines of YAML
}

// vrrpGroup is what moves as one.
type vrrpGroup struct {
	name      string
	from      place
	keys      []string // lines of YAML
	routers   []vrrpRouter
	addresses []movingAddress // that are not advertised
	devices   []trackedDevice
	scripts   []string
	commands  []string // lines of YAML
}

// vrrpRouter is a virtual router.
type vrrpRouter struct {
	from      place
	device    string
	id        int64
	source    string
	peers     []string
	addresses []movingAddress
	elsewhere []movingAddress // on other devices
}

// movingAddress is an address that moves between directors.
type movingAddress struct {
	from   place
	prefix netip.Prefix
	device string
}

// text is an address as configurations have it.
func (a movingAddress) text() string {
	if a.prefix.IsSingleIP() {
		return quoted(a.prefix.Addr().String())
	}
	return quoted(a.prefix.String())
}

type trackedDevice struct {
	from   place
	name   string
	weight int64
}

// Groups are how many groups of addresses there are.
func (r *Result) Groups() int { return len(r.groups) }

// vrrp writes the section of that name.
func (r *Result) vrrp(w *writer) {
	if len(r.groups) == 0 {
		return
	}
	w.at = place{file: r.from}
	w.p("\nvrrp:")
	if len(r.scripts) > 0 {
		w.p("  scripts:")
	}
	for _, s := range r.scripts {
		w.at = s.from
		w.p("    %s: # %s", quoted(s.name), s.from)
		for _, line := range s.body {
			w.p("      %s", line)
		}
	}
	w.at = place{file: r.from}
	w.p("  groups:")
	for i := range r.groups {
		r.groups[i].write(w)
	}
	w.at = place{file: r.from}
}

func (g *vrrpGroup) write(w *writer) {
	w.at = g.from
	w.p("    - name: %s # %s", quoted(g.name), g.from)
	for _, k := range g.keys {
		w.p("      %s", k)
	}
	w.p("      routers:")
	for i := range g.routers {
		g.routers[i].write(w)
	}
	w.at = g.from
	if len(g.addresses) > 0 {
		w.p("      addresses:")
	}
	for _, a := range g.addresses {
		w.at = a.from
		w.p("        - {address: %s, device: %s} # %s", a.text(), quoted(a.device), a.from)
	}
	if len(g.devices) > 0 {
		w.at = g.from
		w.p("      track_interfaces:")
	}
	for _, d := range g.devices {
		weight := ""
		if d.weight != 0 {
			weight = fmt.Sprintf(", weight: %d", d.weight)
		}
		w.at = d.from
		w.p("        - {device: %s%s} # %s", quoted(d.name), weight, d.from)
	}
	w.at = g.from
	if len(g.scripts) > 0 {
		w.p("      track_scripts: %s", list(g.scripts))
	}
	for _, c := range g.commands {
		w.p("      %s", c)
	}
}

func (v *vrrpRouter) write(w *writer) {
	w.at = v.from
	w.p("        - device: %s # %s\n          id: %d", quoted(v.device), v.from, v.id)
	if v.source != "" {
		w.p("          source: %s", quoted(v.source))
	}
	if len(v.peers) > 0 {
		w.p("          peers: %s", list(v.peers))
	}
	if len(v.addresses) > 0 {
		w.p("          addresses:")
	}
	for _, a := range v.addresses {
		w.at = a.from
		w.p("            - %s # %s", a.text(), a.from)
	}
	if len(v.elsewhere) > 0 {
		w.at = v.from
		w.p("          elsewhere:")
	}
	for _, a := range v.elsewhere {
		w.at = a.from
		w.p("            - {address: %s, device: %s} # %s", a.text(), quoted(a.device), a.from)
	}
}

// syncRoles are both roles of the kernel's protocol of synchronization.
type syncRoles struct {
	from place
	keys []string
}

func (s *syncRoles) write(w *writer) {
	if s == nil {
		return
	}
	w.at = s.from
	keys := strings.Join(s.keys, ", ")
	w.p("\nsynchronization: # %s\n  master: {%s}\n  backup: {%s}", s.from, keys, keys)
}
