// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/model"
)

// trafficWindow is how often a backup looks whether packets of clients came to it. It reads
// the counters of all services for that.
const trafficWindow = 10 * time.Second

// trafficWindows are so many in a row with packets, and they are no move of addresses.
const trafficWindows = 2

// traffic is what clients sent to a backup, whose packets should come to its master.
type traffic struct {
	read    bool
	at      time.Duration // it was read
	packets uint64        // from clients, by all counters
	windows int           // in a row with packets
}

// due reports whether a window has passed.
func (t *traffic) due(now time.Duration) bool { return !t.read || now-t.at >= trafficWindow }

// note counts a window.
func (t *traffic) note(now time.Duration, packets uint64) {
	switch {
	case !t.read || packets < t.packets: // counters were set to 0, or a service was removed
	case packets > t.packets:
		t.windows++
	default:
		t.windows = 0
	}
	t.read, t.at, t.packets = true, now, packets
}

// lookTraffic raises the alarm of a backup whose director forwards the packets of clients
// while another one is the master: connections that begin here are known nowhere else.
func (r *Replica) lookTraffic(now time.Duration) error {
	if r.receiver == nil || r.locked {
		return nil
	}
	if !r.receiver.State().Following {
		r.traffic = traffic{} // which director is to have the addresses is not known
		r.alarms.clear(Traffic, netip.AddrPort{})
		return nil
	}
	if !r.traffic.due(now) {
		return nil
	}
	var list []model.ServiceStatus
	var err error
	r.outside(func() { list, err = r.o.Table.Services() })
	if isLocked(err) {
		return nil // the next look reads them
	}
	if err != nil {
		return fmt.Errorf("replication: read the counters: %w", err)
	}
	r.noteTraffic(now, packets(list), r.receiver.State().Sender.Addr())
	return nil
}

func (r *Replica) noteTraffic(now time.Duration, packets uint64, master netip.Addr) {
	r.traffic.note(now, packets)
	switch {
	case r.traffic.windows == 0:
		r.alarms.clear(Traffic, netip.AddrPort{})
	case r.traffic.windows >= trafficWindows && !r.alarms.has(Traffic):
		text := fmt.Sprintf("packets of clients come to this backup, and its master %s does not know their connections: move the virtual addresses there, or make this director the master and that one a backup", master)
		r.alarms.raise(now, Traffic, netip.AddrPort{}, text)
		r.o.Log.Warn("replication: " + text)
	}
}

// packets are those that clients sent to the services.
func packets(list []model.ServiceStatus) (n uint64) {
	for i := range list {
		n += list[i].Stats.InPkts
	}
	return n
}
