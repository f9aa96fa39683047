// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"slices"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// reload changes to another configuration, without a transition.
func (l *loop) reload(wanted *setup.Setup, err error) {
	if l.replacing != nil { // the next program reads the file itself
		l.replacing.reload = func() { l.reload(wanted, err) }
		return
	}
	if err == nil && wanted == nil {
		err = errors.New("the configuration has no section vrrp: stop the process instead")
	}
	if err != nil {
		l.loadError = err.Error()
		l.Log.Error("the configuration is not valid: nothing was changed", "error", oneLine(err))
		return
	}
	t := now()
	l.setup, l.loaded, l.loadError = wanted, time.Now(), ""
	if l.RealTime {
		collectSeldom(wanted)
	}
	l.tracker.set(wanted.Scripts, nil)
	var kept []*group
	for _, g := range l.groups { // first, as another group may get an address
		if slices.ContainsFunc(wanted.Groups, func(w setup.Group) bool { return w.Name == g.setup.Name }) {
			kept = append(kept, g)
			continue
		}
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Shutdown(t, out) })
		g.resigned() // its socket may be closed
	}
	l.groups = nil
	for i := range wanted.Groups {
		w := &wanted.Groups[i]
		at := slices.IndexFunc(kept, func(g *group) bool { return g.setup.Name == w.Name })
		if at >= 0 {
			kept[at].changed(w)
			l.groups = append(l.groups, kept[at])
			continue
		}
		g := newGroup(l, w)
		if err := g.make(); err != nil {
			l.Log.Error("the group cannot be made", "group", w.Name, "error", err) // the parser has tried it
			continue
		}
		l.groups = append(l.groups, g)
	}
	l.openSockets()
	l.guard()
	for _, g := range l.groups {
		if g.machine.State() != vrrp.Initialize {
			g.reload(t)
			g.forgive()
		}
	}
	l.reviewAll(t)
	l.look()
	l.Log.Info("configuration reloaded", "groups", len(l.groups))
}

// scriptChanged is called when a script's verdict has changed.
func (l *loop) scriptChanged(name string) {
	t := now()
	for _, g := range l.groups {
		if slices.Contains(g.setup.Scripts, name) {
			g.review(t)
		}
	}
}

// scriptUnmade logs that a tracked script cannot be run. Its verdict stays; a group that waits for the
// first one is in fault for that reason.
func (l *loop) scriptUnmade(name, why string) {
	l.scriptChanged(name)
	if why == "" {
		l.Log.Info("a tracked script can be run again", "script", name)
		return
	}
	l.Log.Warn("a tracked script cannot be run: its last result counts", "script", name, "reason", why)
}
