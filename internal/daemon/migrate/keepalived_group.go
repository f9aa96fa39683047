// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// syncGroup is a vrrp_sync_group.
type syncGroup struct {
	*statement
	name    string
	members []string
	watched
	made bool // a group of it
}

func (g *syncGroup) has(instance string) bool { return slices.Contains(g.members, instance) }

// syncGroup takes in a vrrp_sync_group.
func (k *keepalived) syncGroup(s *statement) {
	g := &syncGroup{statement: s, name: s.word(1)}
	for _, one := range k.leaves(s.block, "group", "track_interface", "track_script", "track_file", "track_process", "track_bfd") {
		switch {
		case one.is("group"):
			for _, line := range one.block {
				g.members = append(g.members, line.words...)
			}
		case k.watch(&g.watched, one):
		case one.is("global_tracking", "sync_group_tracking_weight"):
			k.lose(one.place, one.text(), "not supported: write what is tracked in the sync group")
		case one.is("smtp_alert", "notify_deleted", "notify_priority_changes"):
			k.instanceLoss(one)
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	if g.name == "" || len(g.members) == 0 {
		k.lose(s.place, s.text(), "has no name, or no group { } with instances: left out")
		return
	}
	for _, other := range k.file.groups {
		if other.name == g.name {
			k.lose(s.place, s.text(), "the name is that of a sync group before: left out")
			return
		}
		g.members = slices.DeleteFunc(g.members, func(m string) bool {
			if other.has(m) {
				k.lose(s.place, s.text(), "%s is in sync group %s, too: there alone", m, other.name)
				return true
			}
			return false
		})
	}
	k.file.groups = append(k.file.groups, g)
}

// vrrpGroups makes groups: of each sync group one, at its first instance, and of each other
// instance.
func (k *keepalived) vrrpGroups() {
	for _, i := range k.file.instances {
		switch {
		case i.group == nil:
			k.vrrpGroup(i.name, i.place, []*vrrpInstance{i}, nil)
		case !i.group.made:
			i.group.made = true
			var members []*vrrpInstance
			for _, one := range k.file.instances {
				if one.group == i.group {
					members = append(members, one)
				}
			}
			name := i.group.name
			if len(members) == 1 {
				name = i.name // for notify commands, which get INSTANCE with it
				k.lose(i.group.place, i.group.text(), "has one instance: the group has its name")
			}
			k.vrrpGroup(name, i.group.place, members, i.group)
		}
	}
	for _, g := range k.file.groups {
		for _, m := range g.members {
			if !slices.ContainsFunc(k.file.instances, func(i *vrrpInstance) bool { return i.name == m }) {
				k.lose(g.place, g.text(), "there is no instance %s, or it is left out", m)
			}
		}
	}
}

func (k *keepalived) vrrpGroup(name string, from place, members []*vrrpInstance, of *syncGroup) {
	first := members[0]
	g := vrrpGroup{from: from}
	g.name = newName(name, func(n string) bool {
		return slices.ContainsFunc(k.groups, func(o vrrpGroup) bool { return o.name == n })
	})
	if g.name != name {
		k.lose(from, name, "not a name here: %s", g.name)
	}
	g.keys = []string{fmt.Sprintf("priority: %d", first.priority), "interval: " + span(first.interval)}
	if first.noPreempt != nil {
		g.keys = append(g.keys, "preempt: false")
	}
	if first.preemptDelay > 0 {
		g.keys = append(g.keys, "preempt_delay: "+span(first.preemptDelay))
	}
	if k.file.hold > 0 {
		// keepalived listens for its master-down time after the delay.
		g.keys = append(g.keys, "hold: "+span(k.file.hold+4*first.interval))
	}
	g.keys = append(g.keys, first.garp.keys()...)
	tracking := make([]watched, 0, len(members)+1)
	if of != nil {
		tracking = append(tracking, of.watched)
	}
	for _, i := range members {
		k.differs(first, i)
		g.routers = append(g.routers, i.router)
		g.addresses = append(g.addresses, i.others...)
		tracking = append(tracking, i.watched)
	}
	for n, w := range tracking {
		weightless := of != nil && len(members) > 1 && n > 0
		k.watchedOf(&g, w, weightless)
	}
	k.commandsOf(&g, tracking)
	k.groups = append(k.groups, g)
}

// nameForm is that of names of groups and scripts.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// newName is a name that is not taken yet: keepalived's, as far as it is a name here.
func newName(name string, taken func(string) bool) string {
	if !nameForm.MatchString(name) {
		name = nameOf(name)
	}
	free := name
	for n := 2; taken(free); n++ {
		free = name + "-" + strconv.Itoa(n)
	}
	return free
}

// differs lists what an instance of a group has otherwise than the first one, which counts.
func (k *keepalived) differs(first, i *vrrpInstance) {
	for _, one := range []struct{ name, first, own string }{
		{"priority", strconv.FormatInt(first.priority, 10), strconv.FormatInt(i.priority, 10)},
		{"advert_int", span(first.interval), span(i.interval)},
		{"nopreempt", strconv.FormatBool(first.noPreempt != nil), strconv.FormatBool(i.noPreempt != nil)},
		{"preempt_delay", span(first.preemptDelay), span(i.preemptDelay)},
		{"garp_master_*", first.garp.text(), i.garp.text()},
	} {
		if one.first != one.own {
			k.lose(i.place, fmt.Sprintf("%s %s of %s", one.name, one.own, i.name), "its sync group moves as one, and has that of %s: %s", first.name, one.first)
		}
	}
}

// watchedOf adds what is tracked to a group, each thing once.
func (k *keepalived) watchedOf(g *vrrpGroup, w watched, weightless bool) {
	for _, d := range w.devices {
		if weightless && d.weight != 0 {
			k.lose(d.from, "track_interface "+d.name, "keepalived ignores weights of members of a sync group: the group is in fault while the device is down")
			d.weight = 0
		}
		if slices.ContainsFunc(g.devices, func(o trackedDevice) bool { return o.name == d.name }) {
			continue
		}
		g.devices = append(g.devices, d)
	}
	for _, t := range w.scripts {
		if name, ok := k.track(t, weightless); ok && !slices.Contains(g.scripts, name) {
			g.scripts = append(g.scripts, name)
		}
	}
}

// commandsOf gives a group the first command for each occasion: the sync group's, or that of
// an instance.
func (k *keepalived) commandsOf(g *vrrpGroup, from []watched) {
	for _, key := range notifies {
		found := false
		for _, w := range from {
			n, has := w.notify[key]
			switch {
			case !has:
			case found:
				k.lose(n.place, key+" "+strings.Join(n.command, " "), "the group has a command for this already: call this one from that")
			default:
				found = true
				g.commands = append(g.commands, key+": "+list(n.command))
			}
		}
	}
}
