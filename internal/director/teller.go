// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// ConnectionTell is the kind of a Told that the synchronization rule selected
// (bpf/sync.h). The others are those of a ConnectionEvent.
const ConnectionTell = "tell"

// Told is an entry of the connection table that backups are to know of.
type Told struct {
	Time time.Time
	Kind string // ConnectionTell, or ConnectionOpen, ConnectionState, ConnectionClose
	// Conn is the entry as it was. Timeout is the whole timeout of a connection's state, too.
	// With the flag ConnReplica what happened was told by another director (Replicate, Merge,
	// Withdraw), or its replica has expired.
	Conn model.Connection
}

// TellRule says what a Teller receives.
type TellRule struct {
	// Changes adds all openings, changes of state and ends. Of connections that is all then:
	// the rule's selection is received while another teller has no Changes.
	Changes bool
	// Ring is the room for events that wait to be read [bytes]: a power of two and a
	// multiple of the page size. 0: the default, 16 MiB, for 120 000 events.
	Ring int
}

// TellBatch is how many entries Each calls with at most.
const TellBatch = 1024

// tellPause is for how long events collect after Each has read all. A reader that waits is
// woken by the next event: at thousands of events a second that costs more than the events,
// the reader as well as the packets.
const tellPause = 5 * time.Millisecond

var telling = listenerKind{
	verb: "tell backups", noun: "teller", doing: "following connections", places: bpfobj.LbMapFollowers,
	ring: 16 << 20, until: followLease, lost: maxTracers,
}

// Teller receives what backups are to know of, from its making until it is closed. The
// data plane applies the rule (sync_threshold and the other settings) while there is one.
type Teller struct {
	listener[bpfobj.LbFollower]
	config, calls *ebpf.Map
	set           bpfobj.LbSettings
	read          time.Time // the settings, with the first of the batch
	batch         []Told
}

// Tell begins to receive what backups of the director of the calling thread's network
// namespace are to know of.
func Tell(rule TellRule) (*Teller, error) {
	kinds := uint8(bpfobj.LbFollowKindFOLLOW_TELL)
	if rule.Changes {
		for _, kind := range followKinds {
			kinds |= uint8(kind)
		}
	}
	t := &Teller{}
	t.kind, t.want = telling, bpfobj.LbFollower{Owner: rand.Uint32(), Kinds: kinds}
	if rule.Ring != 0 {
		t.kind.ring = rule.Ring
	}
	d, err := Open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := t.listen(followerMaps); err != nil {
		return nil, err
	}
	err = d.countTellers()
	if err == nil {
		t.config, err = d.maps.Config.Clone()
	}
	if err == nil {
		t.calls, err = d.maps.CallNumbers.Clone()
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tell backups: %w", err)
	}
	return t, nil
}

// Close ends telling; the last teller switches the rule off.
func (t *Teller) Close() error {
	err := t.listener.Close()
	for _, m := range []*ebpf.Map{t.config, t.calls} {
		if m != nil {
			m.Close()
		}
	}
	d, openErr := t.in.open()
	if openErr != nil {
		return err // the director was removed
	}
	defer d.Close()
	if countErr := d.countTellers(); err == nil {
		err = countErr
	}
	return err
}

// countTellers has packets apply the rule exactly while a teller receives what it
// selects, and to templates alone while all tellers receive all changes of connections.
// After one that was killed the next teller, or its end, does that.
func (d *Director) countTellers() error {
	return d.exclusively(func() error { // another one may begin or end now
		now, err := monotonic()
		if err != nil {
			return err
		}
		all, err := lookupArray[bpfobj.LbFollower](d.maps.Followers, d.maps.Followers.MaxEntries())
		if err != nil {
			return fmt.Errorf("read the followers: %w", err)
		}
		on := bpfobj.LbSyncingSYNCING_NOTHING
		for _, f := range all {
			switch {
			case f.Until <= now || f.Kinds&uint8(bpfobj.LbFollowKindFOLLOW_TELL) == 0:
			case f.Kinds&uint8(bpfobj.LbFollowKindFOLLOW_STATE) == 0:
				on = bpfobj.LbSyncingSYNCING_ALL
			case on == bpfobj.LbSyncingSYNCING_NOTHING:
				on = bpfobj.LbSyncingSYNCING_TEMPLATES
			}
		}
		return d.changeConfig(func(set *bpfobj.LbSettings) { set.Syncing = uint32(on) })
	})
}

// Each calls with every entry until the context ends, which is no error, or something
// fails: with as many as are there, and with none if there was none for a while. Between two
// calls events collect for 5 ms. The slice is valid until call returns.
func (t *Teller) Each(ctx context.Context, call func([]Told) error) error {
	return t.each(ctx, func(raw []byte, more bool) error {
		if raw != nil {
			if err := t.add(raw); err != nil {
				return err
			}
		}
		if more && len(t.batch) < TellBatch {
			return nil
		}
		err := call(t.batch)
		pause := !more && len(t.batch) > 0
		clear(t.batch)
		t.batch = t.batch[:0]
		if pause && err == nil {
			time.Sleep(tellPause)
		}
		return err
	})
}

// Flush has Each call soon with all that has happened up to now, or with nothing.
func (t *Teller) Flush() error { return t.reader.Flush() }

func (t *Teller) add(raw []byte) error {
	var e bpfobj.LbFollowEvent
	if len(raw) < int(unsafe.Sizeof(e)) {
		return fmt.Errorf("tell backups: event of %d bytes", len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), raw)
	if len(t.batch) == 0 { // later ones in the ring are of about the same time
		c, err := readConfig(t.config)
		if err != nil {
			return fmt.Errorf("tell backups: %w", err)
		}
		t.set = c.Settings
		t.read = time.Now()
	}
	told, ok := t.told(&e, raw[unsafe.Sizeof(e):])
	if !ok {
		return nil
	}
	t.batch = append(t.batch, told)
	return nil
}

// callBehind is the call that an event is followed by, nil if it is not.
func callBehind(raw []byte) *bpfobj.LbCall {
	var call bpfobj.LbCall // allocated, as by call
	if len(raw) < int(unsafe.Sizeof(call)) {
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&call)), unsafe.Sizeof(call)), raw)
	return &call
}

// told reads an event, with the call behind it if that is a template's that ends (struct
// follow_call_event); not of a template whose call has ended meanwhile and is not known any
// more.
func (t *Teller) told(e *bpfobj.LbFollowEvent, behind []byte) (told Told, ok bool) {
	told = Told{Time: t.read, Kind: toldKind(e.Kind)}
	of := entry{Flow: e.Flow, LbConn: bpfobj.LbConn{
		Expires: e.Expires, Server: e.Server, Port: e.Port, State: e.State, Flags: e.Flags,
		Template: e.Template, Forward: e.Forward, InPackets: e.InPackets, Fwmark: e.Fwmark, Netmask: e.Netmask,
	}}
	server := bpfobj.LbServer{Addr: e.Addr, Owner: e.Service, Port: e.ServerPort, Forward: bpfobj.LbForward(e.Forward)}
	if number, is := callNumber(e.Flow); is {
		call := callBehind(behind)
		if call == nil {
			call = t.call(number)
		}
		if call == nil {
			return told, false
		}
		told.Conn = fromCall(call, of, server, e.Time)
		if e.Replica != 0 {
			told.Conn.Flags |= model.ConnReplica
		}
		return told, true
	}
	c := &told.Conn
	*c = fromConn(of, server, e.Time)
	if e.Replica != 0 {
		c.Flags |= model.ConnReplica
	}
	if !c.Template {
		c.Timeout = time.Duration(t.set.Timeout[e.State&31])
	}
	if c.Control != nil && c.Control.Kind == model.TemplateCall {
		if call := t.call(e.Fwmark); call != nil {
			c.Control.CallID = callIDOf(call)
		} else {
			c.Control = nil
		}
	}
	return told, true
}

// toldKind is what happened to an entry.
func toldKind(kind uint8) string {
	switch bpfobj.LbFollowKind(kind) {
	case bpfobj.LbFollowKindFOLLOW_OPEN:
		return ConnectionOpen
	case bpfobj.LbFollowKindFOLLOW_STATE:
		return ConnectionState
	case bpfobj.LbFollowKindFOLLOW_CLOSE:
		return ConnectionClose
	}
	return ConnectionTell
}

// call is the call of a number, nil if it has ended.
func (t *Teller) call(number uint32) *bpfobj.LbCall {
	var call bpfobj.LbCall // allocated: not to be a variable of what each event calls
	if t.calls.Lookup(number, &call) != nil {
		return nil
	}
	return &call
}
