// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/pair"
	"imbang/internal/daemon/pair/shared"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/version"
)

// Alarms of the link to the other director.
const (
	alarmPair              = "pair"               // it cannot be made here
	alarmPairLink          = "pair-link"          // the peer is not reached
	alarmPairConfiguration = "pair-configuration" // the configurations differ
	alarmPairOrders        = "pair-orders"        // the peer's orders cannot be taken over
)

// Times of alarms: a restart, and a reload of one director after the other, are none.
const (
	pairLostAfter   = 10 * time.Second
	pairDifferAfter = 5 * time.Second
)

// pairRetry is how often a link that cannot be made is tried again.
const pairRetry = 5 * time.Second

// linked is the link to the other director, and what follows from it.
type linked struct {
	config *pair.Config // nil: none is configured
	key    replicate.KeyDigest
	link   *pair.Link // nil: it could not be made
	began  time.Time
	tried  time.Time

	digest   string // of the configuration
	document []byte // without what is this director's own
	view     *pair.View
	settled  map[core.CheckID]bool
	yield    pair.Yield
	standing pair.Standing
	yields   bool
	merged   string // digest of the peer's orders that are taken over

	compared    [2]string // digests of the configurations that were compared last
	same        *bool     // nil: not known
	differences []shared.Difference
	others      []shared.Difference // certificates that the peer has others of
	differ      time.Time           // since when they do; zero: they do not
}

// setPair makes the link as the configuration says. One whose addresses and key are as they
// were goes on.
func (d *Daemon) setPair() {
	c := d.core.Config.Pair
	if c == nil {
		d.dropPair()
		return
	}
	p := &d.pair
	if p.link == nil || !p.config.SameLink(c) || d.pairKeyChanged() {
		d.dropPair()
		p.config = c
		d.startPair(time.Now())
	}
	p.config, p.yield.Hold = c, c.Hold
	d.setDocument()
	d.publish(time.Now())
}

// pairKeyChanged reports whether the key file has another key since the link was made. One
// that cannot be read any more changes nothing.
func (d *Daemon) pairKeyChanged() bool {
	key, err := d.pair.config.KeyDigest()
	return err == nil && key != d.pair.key
}

func (d *Daemon) startPair(now time.Time) {
	p := &d.pair
	p.tried = now
	p.key, _ = p.config.KeyDigest()
	link, err := pair.Start(p.config, peerHandler{d}, d.Log, d.hear)
	if err != nil {
		d.raise(alarmPair, strings.TrimPrefix(err.Error(), "replication: ")+". It is tried again")
		return
	}
	p.link, p.began = link, now
	d.clear(alarmPair)
}

// hear is called by the link.
func (d *Daemon) hear() {
	select {
	case d.heard <- struct{}{}:
	default:
	}
}

// closePair ends the link. Its alarms stay: they are of a daemon that ends.
func (d *Daemon) closePair() {
	if d.pair.link != nil {
		d.pair.link.Close()
	}
	d.pair = linked{}
}

// dropPair also ends its alarms.
func (d *Daemon) dropPair() {
	d.closePair()
	for _, name := range []string{alarmPair, alarmPairLink, alarmPairConfiguration, alarmPairOrders} {
		d.clear(name)
	}
}

// setDocument keeps what of the applied configuration the peer is to have.
func (d *Daemon) setDocument() {
	rules := config.SharedRules()
	whole, err := config.DecodeDocument(d.core.Config.Document)
	if err == nil {
		d.pair.digest = rules.Digest(whole)
		d.pair.document, err = json.Marshal(rules.Transfer(whole))
	}
	if err != nil {
		d.raise(alarmPair, err.Error())
	}
}

// publish has the peer told how this director is.
func (d *Daemon) publish(now time.Time) {
	p := &d.pair
	if p.link == nil {
		return
	}
	p.link.Publish(pair.State{
		Program: version.Version, Configuration: p.digest, Orders: d.ledger.Digest(), View: p.view, Yields: d.yields(), Groups: d.failover.states(),
		Certificates: d.layer7.prints.of,
	}, now)
}

// keepPair is called every second.
func (d *Daemon) keepPair(now time.Time) {
	p := &d.pair
	if p.config == nil {
		return
	}
	if p.link == nil && now.Sub(p.tried) >= pairRetry {
		d.startPair(now)
	}
	if p.link == nil {
		d.decideYield(&pair.Peer{}, now)
		return
	}
	p.view = d.sees()
	d.layer7.prints.look(d.core.Config)
	d.followPeer(now)
	d.publish(now)
}

// followPeer does what follows from what the peer tells.
func (d *Daemon) followPeer(now time.Time) {
	p := &d.pair
	if p.link == nil {
		return
	}
	peer := p.link.Peer()
	d.watchLink(&peer, now)
	d.takeOrders(&peer, now)
	d.compareDocuments(&peer)
	p.others = d.layer7.prints.differ(peer.State.Certificates)
	d.watchDocuments(now)
	d.decideYield(&peer, now)
	d.publish(now) // what has changed here
}

func (d *Daemon) watchLink(peer *pair.Peer, now time.Time) {
	last := d.pair.began
	if peer.Heard.After(last) {
		last = peer.Heard
	}
	if now.Sub(last) < pairLostAfter {
		if peer.Reached(now) {
			d.clear(alarmPairLink)
		}
		return
	}
	// With the first reason: they change from one try to the next.
	if _, raised := d.alarms[alarmPairLink]; raised {
		return
	}
	text := fmt.Sprintf("the director %s is not reached", d.pair.config.Peer)
	if peer.Err != nil {
		text += ": " + events.Printable(oneLine(peer.Err))
	}
	d.raise(alarmPairLink, text)
}

// clocksAgree is how far two clocks may be apart for times to be taken as they are.
const clocksAgree = 2 * time.Second

// takeOrders takes over what was ordered on the peer.
func (d *Daemon) takeOrders(peer *pair.Peer, now time.Time) {
	o := peer.Orders
	if o == nil || o.Digest == d.pair.merged {
		return
	}
	if err := d.mergeOrders(o, now); err != nil {
		d.raise(alarmPairOrders, oneLine(err))
		return
	}
	d.pair.merged = o.Digest
	d.clear(alarmPairOrders)
}

// sees is which servers the checks see up. Checks that have not decided since the daemon
// began say what another one found, and a service with one of these is undecided. What is
// in maintenance, or not checked, is left out, but for services without any check: their servers
// count as up. A service that is missing in the table has no server up.
func (d *Daemon) sees() *pair.View {
	p := &d.pair
	if p.settled == nil {
		p.settled = map[core.CheckID]bool{}
	}
	view, open := &pair.View{Services: map[string]pair.Seen{}}, map[string]bool{}
	for h := range d.core.Health() {
		key := h.Service.Key.String()
		for _, one := range h.Checks {
			id := core.CheckID{ServerID: h.ID, Check: one.Name}
			fresh := !one.State.At.Before(d.started)
			if fresh && (one.State.Row == 0 || one.State.Since.After(d.started)) {
				p.settled[id] = true
			}
			open[key] = open[key] || !p.settled[id]
		}
		seen := view.Services[key]
		seen.Total++
		if h.Up {
			seen.Up++
		}
		view.Services[key] = seen
	}
	for key, servers := range d.core.Unchecked() {
		view.Services[key.String()] = pair.Seen{Up: servers, Total: servers}
	}
	for id := range d.missing {
		if id.Server.IsValid() {
			continue
		}
		k := id.Service
		if seen, counts := view.Services[k.String()]; counts {
			view.Services[k.String()] = pair.Seen{Total: seen.Total}
			delete(open, k.String()) // whatever its checks find
		}
	}
	for _, key := range slices.Sorted(maps.Keys(open)) {
		if open[key] {
			delete(view.Services, key)
			view.Undecided = append(view.Undecided, key)
		}
	}
	return view
}

func (d *Daemon) decideYield(peer *pair.Peer, now time.Time) {
	p := &d.pair
	var theirs *pair.View
	reached := peer.Reached(now)
	if reached {
		theirs = peer.View
	}
	p.standing = pair.Compare(p.view, theirs)
	before := p.yields
	p.yields = p.yield.Next(now, p.standing, reached, peer.State.Yields)
	if p.yields == before {
		return
	}
	text := fmt.Sprintf("yields to the director %s, which sees more servers up", p.config.Peer)
	if !p.yields {
		text = fmt.Sprintf("does not yield to the director %s any more", p.config.Peer)
	}
	d.note(events.Event{Kind: events.Changed, Text: text})
	d.publish(now)
}

// pairChanges are what applying a configuration changes of the link.
func (d *Daemon) pairChanges(next *pair.Config) []string {
	now := d.pair.config
	switch {
	case now == nil && next == nil:
		return nil
	case now != nil && next != nil && now.SameLink(next):
		if d.pair.link != nil && d.pairKeyChanged() {
			return []string{fmt.Sprintf("restart the link of the pair, %s: %s has another key", next, next.KeyFile)}
		}
		return nil
	case next == nil:
		return []string{fmt.Sprintf("stop the link of the pair, %s", now)}
	case now == nil:
		return []string{fmt.Sprintf("start the link of the pair, %s", next)}
	}
	return []string{fmt.Sprintf("restart the link of the pair, %s", next)}
}

// pairStatus is the link as the API has it; nil: none is configured.
func (d *Daemon) pairStatus(now time.Time) *api.Pair {
	p := &d.pair
	if p.config == nil {
		return nil
	}
	out := &api.Pair{Listen: p.config.Listen.String(), Peer: p.config.Peer.String(), Peers: pair.Unknown.String(), Yields: d.yields(), OwnUp: d.ups(p.view), PeerGroups: []api.PeerGroup{}}
	if p.link == nil {
		out.PeerUp = d.ups(nil)
		return out
	}
	peer := p.link.Peer()
	out.Reached, out.Heard, out.Version, out.PeerUp = peer.Reached(now), peer.Heard, events.Printable(peer.State.Program), d.ups(peer.View)
	out.Same, out.Different, out.Peers, out.PeerYield = p.same, len(p.differences)+len(p.others), p.standing.String(), peer.State.Yields
	for _, name := range slices.Sorted(maps.Keys(peer.State.Groups)) {
		out.PeerGroups = append(out.PeerGroups, api.PeerGroup{Group: events.Printable(name), State: events.Printable(peer.State.Groups[name])})
	}
	if out.Same != nil && len(p.others) > 0 {
		out.Same = new(false)
	}
	if c := peer.Clock; c != nil && out.Reached {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		out.Clock = &api.Clock{AheadMS: ms(c.Ahead), WithinMS: ms(c.Within)}
	}
	out.Orders = peer.State.Orders == d.ledger.Digest()
	if peer.Err != nil {
		out.Error = events.Printable(oneLine(peer.Err))
	}
	return out
}

// ups is a view by services' names, in the order of the configuration.
func (d *Daemon) ups(v *pair.View) []api.Up {
	out := []api.Up{}
	if v == nil {
		return out
	}
	for i := range d.core.Config.Services {
		s := &d.core.Config.Services[i]
		if seen, there := v.Services[s.Key.String()]; there {
			out = append(out, api.Up{Service: s.Name, Up: seen.Up, Total: seen.Total})
		}
	}
	return out
}
