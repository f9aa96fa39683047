// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
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
	Conn model.Connection
}

// TellRule says what a Teller receives.
type TellRule struct {
	// Changes adds all openings, changes of state and ends to what the rule selects.
	Changes bool
	// Ring is the room for events that wait to be read [bytes]: a power of two and a
	// multiple of the page size. 0: the default, 16 MiB, for 120 000 events.
	Ring int
}

// TellBatch is how many entries Each calls with at most.
const TellBatch = 1024

var telling = listenerKind{
	verb: "tell backups", noun: "teller", doing: "following connections", places: bpfobj.LbMapFollowers,
	ring: 16 << 20,
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
// selects. After one that was killed the next teller, or its end, does that.
func (d *Director) countTellers() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	all, err := lookupAll[bpfobj.LbFollower](d.maps.Followers, d.maps.Followers.MaxEntries())
	if err != nil {
		return fmt.Errorf("read the followers: %w", err)
	}
	var on uint32
	for _, f := range all {
		if f.Until > now && f.Kinds&uint8(bpfobj.LbFollowKindFOLLOW_TELL) != 0 {
			on = 1
		}
	}
	return d.changeConfig(func(set *bpfobj.LbSettings) { set.Syncing = on })
}

// Each calls with every entry until the context ends, which is no error, or something
// fails: with as many as are there, and with none if there was none for a while. The slice
// is valid until call returns.
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
		clear(t.batch)
		t.batch = t.batch[:0]
		return err
	})
}

func (t *Teller) add(raw []byte) error {
	var e bpfobj.LbFollowEvent
	if len(raw) < int(unsafe.Sizeof(e)) {
		return fmt.Errorf("tell backups: event of %d bytes", len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), raw)
	if len(t.batch) == 0 { // later ones in the ring are of about the same time
		if err := t.config.Lookup(uint32(0), &t.set); err != nil {
			return fmt.Errorf("tell backups: read the configuration: %w", err)
		}
		t.read = time.Now()
	}
	told := fromTold(&e, &t.set, t.read)
	if number, ok := callNumber(e.Flow); ok {
		// The call of a template that has ended meanwhile is not known any more.
		var c bpfobj.LbCall
		if t.calls.Lookup(number, &c) != nil {
			return nil
		}
		t.withCall(&told.Conn, &c)
	}
	if control := told.Conn.Control; control != nil && control.Kind == model.TemplateCall {
		var c bpfobj.LbCall
		if t.calls.Lookup(e.Fwmark, &c) != nil {
			told.Conn.Control = nil
		} else {
			control.CallID = callIDOf(&c)
		}
	}
	t.batch = append(t.batch, told)
	return nil
}

// withCall completes the template of a call.
func (t *Teller) withCall(c *model.Connection, call *bpfobj.LbCall) {
	c.Client = clientOf(call.Clients)
	c.Protocol = model.Protocol(call.Clients.Protocol)
	c.Virtual = netip.AddrPortFrom(fromAddressOf(call.Clients.Dst, call.Clients.Family), swapPort(call.Clients.Dport))
	c.Engine, c.EngineData = engineName(uint8(bpfobj.LbEngineENGINE_SIP)), callIDOf(call)
}

// fromTold reads an event that was received just now.
func fromTold(e *bpfobj.LbFollowEvent, set *bpfobj.LbSettings, now time.Time) Told {
	addr := fromAddress(e.Addr)
	told := Told{Time: now, Kind: ConnectionTell, Conn: model.Connection{
		Protocol:   model.Protocol(e.Flow.Protocol),
		State:      stateName(e.State, e.Flags),
		Expires:    time.Duration(max(0, int64(e.Expires-e.Time))),
		Client:     clientOf(e.Flow),
		Virtual:    netip.AddrPortFrom(fromAddressOf(e.Flow.Dst, e.Flow.Family), swapPort(e.Flow.Dport)),
		Server:     netip.AddrPortFrom(addr, swapPort(e.Port)),
		Service:    fromKey(e.Service),
		RealServer: netip.AddrPortFrom(addr, swapPort(e.ServerPort)),
		Forward:    model.Forward(e.Forward),
		Flags:      fromConnFlags(e.Flags),
		InPackets:  e.InPackets,
	}}
	for kind, number := range followKinds {
		if e.Kind == uint8(number) {
			told.Kind = kind
		}
	}
	c := &told.Conn
	if e.Flow.Template != 0 {
		c.Template, c.Timeout, c.Connections = true, time.Duration(e.Netmask)*time.Second, e.Fwmark
		if e.Port == invalidPort && (e.Flow.Dport == invalidPort || e.Flow.Protocol == callProtocol) {
			c.Flags |= model.ConnInvalid
		}
		return told
	}
	c.Timeout = time.Duration(set.Timeout[e.State&31])
	if e.Template != uint8(bpfobj.LbTemplateKindTEMPLATE_NONE) {
		c.Control = &model.Control{Kind: model.TemplateKind(e.Template), Netmask: fromNetmask(e.Netmask, model.Family(e.Flow.Family))}
	}
	return told
}
