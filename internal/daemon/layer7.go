// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
)

// Alarms of layer 7.
const (
	alarmProxy       = "proxy"       // HAProxy does not do what is wanted
	alarmCertificate = "certificate" // a file is damaged or missing
)

// layer7 is what the daemon has of HAProxy.
type layer7 struct {
	dir    string
	keeper *carry.Keeper // nil: there never was a listener
	wanted *carry.Wanted
	number uint64 // of wanted
	// patience is how long HAProxy's own checks stay off without a daemon.
	patience time.Duration
	order    nodeOrder
	end      nodeEnd
	prints   prints // of certificates
	restarts int    // of HAProxy that there are events of
}

// checkTime is how long HAProxy may take to check a configuration.
const layer7CheckTime = 30 * time.Second

// checkLayer7 has HAProxy check the listeners of a configuration, which takes seconds if it is large.
// Verdicts of checks are carried out meanwhile. It is called by the loop, for a file that has changed
// since it was a candidate, or was written by the loop itself.
func (d *Daemon) checkLayer7(c *config.Config) error {
	if c.Layer7 == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), layer7CheckTime)
	defer cancel()
	checked := make(chan error, 1)
	go func() {
		_, err := carry.Check(ctx, d.layer7.dir, "", &c.Layer7.Config)
		checked <- err
	}()
	tick := time.NewTicker(polled)
	defer tick.Stop()
	for {
		select {
		case err := <-checked:
			return err
		case r := <-d.results:
			d.take(r)
		case <-tick.C:
			d.keepLayer7(time.Now())
			d.keepFailover() // or imbang vrrp takes the loop for one that hangs
			alive()
		}
	}
}

// lastDown are the servers of backends that HAProxy was told last are down: the daemon that told it
// may have been killed before it wrote that down. While HAProxy checks servers itself, what it has found
// is newer, and up are those that it has found so.
func (d *Daemon) lastDown(c *config.Config) (down, up map[operator.ServerID]bool) {
	down, up = map[operator.ServerID]bool{}, map[operator.ServerID]bool{}
	if c.Layer7 == nil {
		return down, up
	}
	states, found := carry.LastStates(d.layer7.dir), carry.Found(context.Background(), d.layer7.dir)
	for i := range c.Layer7.Pools {
		p := &c.Layer7.Pools[i]
		for j := range p.Servers {
			of := l7.ServerID{Backend: p.Backend, Server: p.Servers[j].Name}
			id := operator.ServerID{Service: p.ID(), Server: p.Servers[j].AddrPort()}
			health, now := found[of]
			if !now {
				health = states[of].Health
			}
			if health == l7.Down {
				down[id] = true
			}
			up[id] = now && health == l7.Up
		}
	}
	return down, up
}

// setLayer7 has HAProxy carry out the configuration that was applied. Without listeners it
// accepts no connections any more, if it ever did.
func (d *Daemon) setLayer7(now time.Time) {
	c := d.core.Config.Layer7
	if d.layer7.keeper == nil {
		if c == nil && supervise.Published(d.layer7.dir) == "" {
			return
		}
		d.layer7.keeper = carry.New(carry.Options{Dir: d.layer7.dir, State: d.State, Log: d.Log})
	}
	w := &carry.Wanted{Config: &l7.Config{}}
	if c != nil {
		w.Config = &c.Config
	}
	d.layer7.patience = w.Config.Engine.Fallback
	// First, or the supervisor has HAProxy's own checks take the place of what is published.
	if supervise.Published(d.layer7.dir) != "" {
		if err := supervise.Renew(d.layer7.dir, d.layer7.patience); err != nil {
			d.setAlarm(alarmProxy, err.Error())
		}
	}
	w.States, w.Draining = d.core.States(now), d.layer7.order.Drain != nil
	d.wantLayer7(w)
}

func (d *Daemon) wantLayer7(w *carry.Wanted) {
	d.layer7.wanted, d.layer7.number = w, d.layer7.keeper.Set(w)
}

// followLayer7 has HAProxy follow what the core wants of servers.
func (d *Daemon) followLayer7(now time.Time) {
	if d.layer7.keeper == nil {
		return
	}
	w := *d.layer7.wanted
	if w.States = d.core.States(now); !maps.Equal(w.States, d.layer7.wanted.States) {
		d.wantLayer7(&w)
	}
}

// keepLayer7 says that the daemon is there, and what is wrong.
func (d *Daemon) keepLayer7(now time.Time) {
	if d.layer7.keeper == nil {
		return
	}
	d.followLayer7(now) // deadlines of drains
	d.endNode(now)
	problem := ""
	if err := supervise.Renew(d.layer7.dir, d.layer7.patience); err != nil {
		problem = err.Error()
	}
	s := d.layer7.keeper.Status()
	if s.Problem != "" && (d.core.Config.Layer7 != nil || supervise.Published(d.layer7.dir) != "") {
		problem = s.Problem
	}
	d.setAlarm(alarmProxy, haproxy.Public(problem)) // everyone reads alarms
	if s.Restarts > d.layer7.restarts {
		d.layer7.restarts = s.Restarts
		text := "HAProxy was started again"
		if s.LastEnd != "" {
			text += ": " + strings.ReplaceAll(haproxy.Public(s.LastEnd), "\n", "; ")
		}
		d.note(events.Event{Kind: events.ProxyRestarted, Text: text})
	}
	var wrong []string
	for _, path := range slices.Sorted(maps.Keys(s.Certificates)) {
		wrong = append(wrong, s.Certificates[path])
	}
	d.setAlarm(alarmCertificate, strings.Join(wrong, "; "))
}

// setAlarm raises an alarm, or clears it if there is no text.
func (d *Daemon) setAlarm(name, text string) {
	if text == "" {
		d.clear(name)
	} else {
		d.raise(name, text)
	}
}

// layer7Of is layer 7 of a configuration; nil: it has none.
func layer7Of(c *config.Config) *l7.Config {
	if c == nil || c.Layer7 == nil {
		return nil
	}
	return &c.Layer7.Config
}

// layer7Changes are the servers of backends that another configuration changes, and what HAProxy
// would do for it, one line each.
func (d *Daemon) layer7Changes(next *config.Config) (lines []string) {
	c := layer7Of(next)
	if d.layer7.keeper == nil {
		lines = l7.Differences(carry.LastConfig(d.layer7.dir), c)
		if c != nil {
			lines = append(lines, fmt.Sprintf("HAProxy: %d listeners and %d backends", len(c.Listeners), len(c.Backends)))
		}
		return lines
	}
	lines = l7.Differences(layer7Of(d.core.Config), c)
	if c == nil {
		c = &l7.Config{}
	}
	commands, reload := d.layer7.keeper.Preview(d.layer7.wanted, c)
	if commands > 0 {
		lines = append(lines, fmt.Sprintf("HAProxy: %d commands that change servers", commands))
	}
	for _, why := range reload {
		lines = append(lines, "HAProxy reloads: "+why)
	}
	return lines
}

func (d *Daemon) closeLayer7() {
	if d.layer7.keeper != nil {
		d.layer7.keeper.Close()
	}
}
