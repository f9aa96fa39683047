// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"net/netip"
	"time"
)

// trafficWindow is how often a backup looks whether packets of clients came to it.
const trafficWindow = 10 * time.Second

// trafficWindows are so many in a row with packets, so that there were some for one whole
// window at least: it is no move of addresses.
const trafficWindows = 3

// traffic is what clients sent to a backup, whose packets should come to its master.
type traffic struct {
	master  netip.Addr
	at      time.Duration // it was read; with a master
	packets uint64        // from clients
	windows int           // in a row with packets
}

// due reports whether a window has passed, or another director is the master.
func (t *traffic) due(now time.Duration, master netip.Addr) bool {
	return t.master != master || now-t.at >= trafficWindow
}

// note counts a window.
func (t *traffic) note(now time.Duration, packets uint64, master netip.Addr) {
	switch {
	case t.master != master:
		t.windows = 0
	case packets > t.packets:
		t.windows++
	case packets == t.packets:
		t.windows = 0
	}
	// Fewer than before: services were removed, and what came meanwhile is not known.
	t.master, t.at, t.packets = master, now, packets
}

// lookTraffic raises the alarm of a backup whose director forwards the packets of clients
// while another one is the master: connections that begin here are known nowhere else.
func (r *Replica) lookTraffic(now time.Duration) error {
	if r.config.Role != Backup || r.receiver == nil {
		return nil
	}
	state := r.receiver.State()
	if !state.Following {
		r.traffic = traffic{} // which director is to have the addresses is not known
		r.alarms.clear(Traffic, netip.AddrPort{})
		return nil
	}
	master := state.Sender.Addr()
	if !r.traffic.due(now, master) {
		return nil
	}
	packets, err := r.o.Table.ClientPackets()
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	r.noteTraffic(now, packets, master)
	return nil
}

func (r *Replica) noteTraffic(now time.Duration, packets uint64, master netip.Addr) {
	r.traffic.note(now, packets, master)
	switch {
	case r.traffic.windows == 0:
		r.alarms.clear(Traffic, netip.AddrPort{})
	case r.traffic.windows >= trafficWindows && !r.alarms.has(Traffic):
		text := fmt.Sprintf("packets of clients come to this backup, and its master %s does not know their connections: move the virtual addresses there, or make this director the master and that one a backup", master)
		r.alarms.raise(now, Traffic, netip.AddrPort{}, text)
		r.o.Log.Warn("replication: " + text)
	}
}
