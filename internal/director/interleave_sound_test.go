// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/bpfobj"
)

// wantSound checks what holds whenever no operation is under way: servers count
// the connections that there are, none of which is dead, and each has a timer
// entry of its own in a slot. Of IPv4.
func (x *interleaved) wantSound(when string) {
	x.Helper()
	slotted := x.slotted()
	set, err := x.config()
	x.must(err)
	want := make([]bpfobj.LbLoad, set.Servers)
	var key bpfobj.LbFlow4
	var conn bpfobj.LbConn4
	it := x.maps.Conns4.Iterate()
	for it.Next(&key, &conn) {
		name := flowName(key)
		if conn.Flags&uint8(bpfobj.LbConnFlagCONN_DEAD) != 0 {
			x.Errorf("%s: connection %s is in the table and dead: it never expires", when, name)
		}
		if flow, there := slotted[conn.Number]; !there || flow != key {
			x.Errorf("%s: connection %s has timer entry %d, which is in no slot or another flow's (%s): it never expires", when, name, conn.Number, flowName(flow))
		}
		l := &want[conn.Server]
		if conn.Flags&connUnproven != 0 {
			l.Overloaded += loadUnproven
		}
		switch {
		case key.Template != 0:
			l.Persistent++
		case conn.Flags&uint8(bpfobj.LbConnFlagCONN_INACTIVE) != 0:
			l.Inactive++
		default:
			l.Active++
		}
	}
	x.must(it.Err())
	for id, w := range want {
		got := x.load(uint32(id))
		if got.Active != w.Active || got.Inactive != w.Inactive || got.Persistent != w.Persistent {
			x.Errorf("%s: server %d counts %d active, %d inactive connections, %d templates; there are %d, %d, %d", when, id,
				int32(got.Active), int32(got.Inactive), int32(got.Persistent), w.Active, w.Inactive, w.Persistent)
		}
		if unproven(got) != unproven(w) {
			x.Errorf("%s: server %d counts %d unproven entries; there are %d", when, id, int32(unproven(got)), unproven(w))
		}
	}
}

// wantOver lets more time pass than any connection lives, and checks that nothing
// is left.
func (x *interleaved) wantOver() {
	x.Helper()
	x.pass(20 * time.Minute)
	x.wantSound("in the end")
	if n := x.entries(x.maps.Conns4); n != 0 {
		x.Errorf("in the end: %d connections do not expire", n)
	}
	if n := len(x.slotted()); n != 0 {
		x.Errorf("in the end: %d timer entries are in slots", n)
	}
	if in, taken := x.freeEntries(), x.takenEntries(); in != taken {
		x.Errorf("in the end: of %d timer entries that were taken %d are free again", taken, in)
	}
}

// load is what a server counts, by its id.
func (x *interleaved) load(id uint32) (l bpfobj.LbLoad) {
	x.Helper()
	x.must(x.maps.Loads.Lookup(id, &l))
	return l
}

// slotted are the flows of timer entries in the slots of the wheel, by number.
func (x *interleaved) slotted() map[uint32]bpfobj.LbFlow4 {
	x.Helper()
	all := map[uint32]bpfobj.LbFlow4{}
	for at := range x.maps.Wheel.MaxEntries() {
		var slot bpfobj.LbWheelSlot
		x.must(x.maps.Wheel.Lookup(at, &slot))
		x.follow(slot.First4, func(number uint32, flow bpfobj.LbFlow4) { all[number] = flow })
	}
	return all
}

// follow walks over a list of timer entries.
func (x *interleaved) follow(number uint32, visit func(uint32, bpfobj.LbFlow4)) {
	x.Helper()
	seen := map[uint32]bool{}
	for number != 0 {
		if seen[number] {
			x.Errorf("timer entry %d is twice in a list", number)
			return
		}
		seen[number] = true
		var e bpfobj.LbTimerPair4
		x.must(x.maps.TimerEntries4.Lookup((number-1)/2, &e))
		half := (number - 1) & 1
		visit(number, e.Flow[half])
		number = e.Next[half]
	}
}

// freeEntries counts what is in the lists of free timer entries.
func (x *interleaved) freeEntries() (n int) {
	x.Helper()
	for _, l := range x.freeLists() {
		x.follow(l.First, func(uint32, bpfobj.LbFlow4) { n++ })
	}
	return n
}

// takenEntries is how many timer entries were ever taken.
func (x *interleaved) takenEntries() (n int) {
	x.Helper()
	for _, l := range x.freeLists() {
		n += int(l.Fresh)
	}
	return n
}

// freeLists are those of IPv4.
func (x *interleaved) freeLists() []bpfobj.LbFreeTimerEntries {
	x.Helper()
	all := make([]bpfobj.LbFreeTimerEntries, x.maps.FreeLists.MaxEntries()/2)
	for i := range all {
		x.must(x.maps.FreeLists.Lookup(uint32(i), &all[i]))
	}
	return all
}

// flowName is a flow as text.
func flowName(f bpfobj.LbFlow4) string {
	return fmt.Sprintf("%s:%d > %s:%d", addrOf4(f.Src), swapPort(f.Sport), addrOf4(f.Dst), swapPort(f.Dport))
}

// addrOf4 reads an address of IPv4 as it lies in a flow.
func addrOf4(word uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return netip.AddrFrom4(b)
}
