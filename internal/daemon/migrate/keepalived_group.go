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
	made    bool // a group of it
	weights bool // sync_group_tracking_weight
}

// syncGroups are the keywords of vrrp_sync_group.
var syncGroups = blockKind[*syncGroup]{name: "vrrp_sync_group", nested: append([]string{"group"}, watchedBlocks...), keys: map[string]keyword[*syncGroup]{
	"group": func(k *keepalived, g *syncGroup, s *statement) {
		if len(g.members) > 0 {
			k.lose(s.place, s.text(), "there is one above: left out, as keepalived does")
			return
		}
		for _, line := range s.block {
			g.members = append(g.members, line.words...)
		}
	},
	"track_interface": on(byGroup, (*keepalived).trackInterfaces),
	"track_script":    on(byGroup, (*keepalived).trackScripts),
	"track_file":      on(byGroup, (*keepalived).notTracked),
	"track_process":   on(byGroup, (*keepalived).notTracked),
	"track_bfd":       on(byGroup, (*keepalived).notTracked),
	"notify":          on(byGroup, (*keepalived).notifyCommand),
	"notify_master":   on(byGroup, (*keepalived).notifyCommand),
	"notify_backup":   on(byGroup, (*keepalived).notifyCommand),
	"notify_fault":    on(byGroup, (*keepalived).notifyCommand),
	"notify_stop":     on(byGroup, (*keepalived).notifyCommand),

	"global_tracking":            (*keepalived).memberWeights,
	"sync_group_tracking_weight": (*keepalived).memberWeights,
	"smtp_alert":                 given(lost[*syncGroup]("no mail is sent of transitions: use notify")),
	"notify_priority_changes":    given(lost[*syncGroup]("not supported")),
}}

func byGroup(g *syncGroup) *watched { return &g.watched }

func (k *keepalived) memberWeights(g *syncGroup, s *statement) {
	g.weights = true
	k.lose(s.place, s.text(), "the group has one priority, which weights of all instances change")
}

// syncGroup takes in a vrrp_sync_group, which is the n-th statement of the file.
func (k *keepalived) syncGroup(s *statement, n int) {
	g := &syncGroup{statement: s, name: s.word(1), watched: watched{order: n, told: "GROUP " + s.word(1)}}
	syncGroups.read(k, g, s.block)
	if len(s.words) != 2 || len(g.members) == 0 {
		k.lose(s.place, s.text(), "has no name or more than one, or no group { } with instances: left out")
		return
	}
	if slices.ContainsFunc(k.file.groups, func(other *syncGroup) bool { return other.name == g.name }) {
		k.lose(s.place, s.text(), "the name is that of a sync group before: left out")
		return
	}
	g.members = slices.DeleteFunc(g.members, func(m string) bool {
		other := k.file.memberOf[m]
		if other != nil {
			k.lose(s.place, s.text(), "%s is in sync group %s, too: there alone", m, other.name)
		}
		return other != nil
	})
	for _, m := range g.members {
		k.file.memberOf[m] = g
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
	there := map[string]bool{}
	for _, i := range k.file.instances {
		there[i.name] = true
	}
	for _, g := range k.file.groups {
		for _, m := range g.members {
			if !there[m] {
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
	owner := slices.ContainsFunc(members, func(i *vrrpInstance) bool { return i.priority == 255 })
	for n, w := range tracking {
		k.watchedOf(&g, w, weightsOf(of, n, owner))
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

// weighing is what becomes of the weights of what an instance or a sync group tracks.
type weighing struct {
	devices, scripts bool   // they are tracked, without their weight
	why              string // "": weights count
}

// weightsOf is what keepalived does with the weights of a sync group, which is the first of
// what is tracked, or of an instance. A priority of 255 does not change.
func weightsOf(of *syncGroup, n int, owner bool) weighing {
	switch {
	case of != nil && n == 0 && owner:
		return weighing{true, true, "with an instance of priority 255 in the sync group, keepalived clears the weight"}
	case of != nil && n > 0 && !of.weights:
		return weighing{true, false, "keepalived ignores weights of members of a sync group"}
	case owner && (of == nil || n > 0):
		return weighing{false, false, "keepalived ignores weights with priority 255"}
	}
	return weighing{}
}

// watchedOf adds what is tracked to a group, each thing once.
func (k *keepalived) watchedOf(g *vrrpGroup, w watched, weights weighing) {
	for _, d := range w.devices {
		if weights.why != "" && d.weight != 0 {
			d.weight = 0
			if !weights.devices {
				k.lose(d.from, "track_interface "+d.name, "%s: left out", weights.why)
				continue
			}
			k.lose(d.from, "track_interface "+d.name, "%s: the group is in fault while the device is down", weights.why)
		}
		n := slices.IndexFunc(g.devices, func(o trackedDevice) bool { return o.name == d.name })
		switch {
		case n < 0:
			g.devices = append(g.devices, d)
		case g.devices[n].weight != d.weight:
			k.lose(d.from, "track_interface "+d.name, "the group tracks the device with weight %d, from %s: left out", g.devices[n].weight, g.devices[n].from)
		}
	}
	for _, t := range w.scripts {
		if weights.why != "" && t.weight != 0 {
			t.weight = 0
			if !weights.scripts { // without its weight it would put the group in fault, on all directors at once
				k.lose(t.place, "track_script "+t.text(), "%s, and does not track the script: left out", weights.why)
				continue
			}
			k.lose(t.place, "track_script "+t.text(), "%s: the group is in fault while the script fails", weights.why)
		}
		if name := k.track(t.check, t.weight); !slices.Contains(g.scripts, name) {
			g.scripts = append(g.scripts, name)
		}
	}
}

// commandsOf gives a group the first command for each occasion: the sync group's, or that of
// an instance.
func (k *keepalived) commandsOf(g *vrrpGroup, from []watched) {
	told := "INSTANCE " + g.name
	if len(g.routers) > 1 {
		told = "GROUP " + g.name
	}
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
				if key == "notify" && w.told != told {
					k.lose(n.place, key+" "+strings.Join(n.command, " "), "its first arguments are %s; keepalived's are %s: change what the program looks for", told, w.told)
				}
				g.commands = append(g.commands, key+": "+list(n.command))
			}
		}
	}
}
