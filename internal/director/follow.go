// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Kinds of ConnectionEvent.
const (
	ConnectionOpen  = "open"  // an entry of the connection table was inserted
	ConnectionState = "state" // its state changed
	ConnectionClose = "close" // it was removed
	// ConnectionLost: events were lost, as the ring was full, or an upgrade replaced
	// the table. Only the table itself (Connections) tells what is there now.
	ConnectionLost = "lost"
)

// ConnectionKinds are the kinds that a FollowRule may have.
func ConnectionKinds() []string { return []string{ConnectionOpen, ConnectionState, ConnectionClose} }

// followKinds are their numbers.
var followKinds = map[string]bpfobj.LbFollowKind{
	ConnectionOpen: bpfobj.LbFollowKindFOLLOW_OPEN, ConnectionState: bpfobj.LbFollowKindFOLLOW_STATE,
	ConnectionClose: bpfobj.LbFollowKindFOLLOW_CLOSE,
}

// FollowRule says which events a follower receives. It is applied in the kernel. The
// zero value asks for all events.
type FollowRule struct {
	Kinds    []string       // of ConnectionKinds; none: all
	Virtual  netip.AddrPort // the service's address; port 0: any; not valid: any service
	Mark     uint32         // or of a fwmark service
	Protocol model.Protocol // 0: any
	Entries  EntryKind      // connections, templates (of which an opening and an end are reported), or both
	// Ring is the room for events that wait to be read [bytes]: a power of two and a
	// multiple of the page size. 0: the default, 4 MiB, for 30 000 events.
	Ring int
}

// following is what followers have in common.
var following = listenerKind{
	verb: "follow connections", noun: "follower", doing: "following connections", places: bpfobj.LbMapFollowers,
	ring: 4 << 20, until: followLease, lost: maxTracers,
}

const (
	followLease = 1 // LISTENERS_FOLLOW of bpf/types.h
	maxTracers  = 8 // TRACERS, whose lost events are counted before those of followers
)

// lossInterval is how often a follower that does not keep up looks whether it lost
// events.
const lossInterval = 50 * time.Millisecond

// Follower receives the openings, changes of state and ends of connections, from its
// making until it is closed. A reader that needs the table's content makes
// a follower, reads the table (Director.Connections), and then applies the events: it
// enters a connection that it does not know at any event but an end, and forgets it
// at its end. bpf/follow.h says in which order events come.
type Follower struct {
	listener[bpfobj.LbFollower]
	checked time.Time       // for losses
	missing ConnectionEvent // to be said; no kind: none
}

// Follow begins to follow the connections of the director of the calling thread's
// network namespace.
func Follow(rule FollowRule) (*Follower, error) {
	want, err := rule.follower()
	if err != nil {
		return nil, err
	}
	f := &Follower{}
	f.kind, f.want = following, want
	if rule.Ring != 0 {
		f.kind.ring = rule.Ring
	}
	if err := f.listen(followerMaps); err != nil {
		return nil, err
	}
	return f, nil
}

func followerMaps(d *Director) listenerMaps {
	return listenerMaps{d.maps.ListenedUntil, d.maps.Followers, d.maps.FollowRings, d.maps.Unheard}
}

// following counts the followers.
func (d *Director) following() (int, error) {
	n, err := listeners[bpfobj.LbFollower](d.maps.Followers)
	if err != nil {
		return 0, fmt.Errorf("read the followers: %w", err)
	}
	return n, nil
}

// follower is the rule as the kernel has it.
func (r FollowRule) follower() (bpfobj.LbFollower, error) {
	f := bpfobj.LbFollower{Owner: rand.Uint32(), Protocol: uint8(r.Protocol), Entries: uint8(r.Entries)}
	kinds := r.Kinds
	if len(kinds) == 0 {
		kinds = ConnectionKinds()
	}
	for _, kind := range kinds {
		if err := CheckConnectionKind(kind); err != nil {
			return f, err
		}
		f.Kinds |= uint8(followKinds[kind])
	}
	switch {
	case r.Mark != 0:
		f.Service = toKey(model.MarkKey(r.Mark, model.IPv4))
	case r.Virtual.IsValid():
		f.Service = toKey(model.AddrKey(0, r.Virtual))
		if r.Virtual.Port() == 0 {
			f.EveryPort = 1
		}
	}
	return f, nil
}

// ConnectionEvent is what happened to an entry of the connection table, and what the
// entry was at that moment.
type ConnectionEvent struct {
	Time time.Time `json:"time"`
	Kind string    `json:"event"` // open, state, close or lost
	// Lost is how many events are missing, of kind lost alone: 0 if an upgrade replaced
	// the table.
	Lost uint64 `json:"lost,omitempty"`

	Protocol string         `json:"protocol,omitempty"` // none in the template of a fwmark service
	Client   netip.AddrPort `json:"client,omitzero"`    // of a template: the network's address
	Virtual  netip.AddrPort `json:"virtual,omitzero"`
	Server   netip.AddrPort `json:"server,omitzero"`
	Service  string         `json:"service,omitempty"`
	Forward  string         `json:"forward,omitempty"`
	Was      string         `json:"was,omitempty"` // the state before, of kind state
	State    string         `json:"state,omitempty"`
	Flags    []string       `json:"flags,omitempty"` // connectionFlags
	// ExpiresIn is how long it lives without another packet [s].
	ExpiresIn float64 `json:"expires_in,omitempty"`

	// IsTemplate: it is a persistence template, and how many connections it controls,
	// and for how long it lives without any [s].
	IsTemplate  bool   `json:"-"`
	Connections uint32 `json:"controls,omitempty"`
	Timeout     uint32 `json:"timeout,omitempty"`
	// Template is what controls a connection; of a call's template, that itself.
	Template *ControllingTemplate `json:"template,omitempty"`
	// Over: the entry was removed before its opening could be reported, and the event of
	// that may have come first.
	Over bool `json:"over,omitempty"`

	// Ids of the director's tables. A server's may be another's after the end of its last
	// connection.
	ServerID  uint32 `json:"-"`
	ServiceID uint32 `json:"-"`
}

// ControllingTemplate is the template that a connection is counted by.
type ControllingTemplate struct {
	By      string `json:"kind"`              // port, address, mark or call: what it stands for in addition to the clients
	Network string `json:"network,omitempty"` // of clients
	Mark    uint32 `json:"mark,omitempty"`
	Call    uint32 `json:"call,omitempty"` // the number of its Call-ID in the director's tables
}

// connectionFlags are the words for the flags of an entry.
var connectionFlags = []struct {
	bit  bpfobj.LbConnFlag
	word string
}{
	{bpfobj.LbConnFlagCONN_INACTIVE, "inactive"},
	{bpfobj.LbConnFlagCONN_ASSURED, "assured"},
	{bpfobj.LbConnFlagCONN_UNPROVEN, "unproven"},
	{bpfobj.LbConnFlagCONN_HAIRPIN, "hairpin"},
	{bpfobj.LbConnFlagCONN_REPLIED, "replied"},
	{bpfobj.LbConnFlagCONN_ADOPTED, "adopted"},
}

// Each calls for every event until the context ends, which is no error, or something
// fails. If events are lost it calls with one of kind lost, behind every event that was
// in the ring when the loss was noticed. A reader that then reads the table again may
// apply the events that follow to what it has read.
func (f *Follower) Each(ctx context.Context, call func(ConnectionEvent) error) error {
	return f.each(ctx, func(raw []byte, more bool) error {
		noticed := f.missing.Kind != ""
		drained := !more
		if raw != nil {
			e, err := followEvent(raw)
			if err != nil {
				return err
			}
			if noticed && e.Time.After(f.missing.Time) {
				noticed = false
				if err := f.sayMissing(call); err != nil {
					return err
				}
			}
			if err := call(e); err != nil {
				return err
			}
		}
		if noticed && drained {
			if err := f.sayMissing(call); err != nil {
				return err
			}
		}
		return f.lookForMissing(more)
	})
}

func (f *Follower) sayMissing(call func(ConnectionEvent) error) error {
	e := f.missing
	f.missing, f.patience = ConnectionEvent{}, 0
	return call(e)
}

// lookForMissing notices that events are missing.
func (f *Follower) lookForMissing(more bool) error {
	if more && time.Since(f.checked) < lossInterval {
		return nil
	}
	f.checked = time.Now()
	n, err := f.Lost()
	f.mu.Lock()
	replaced := f.tablesNew
	f.tablesNew = false
	f.mu.Unlock()
	if n == 0 && !replaced {
		return err
	}
	f.missing.Kind, f.missing.Time, f.missing.Lost = ConnectionLost, time.Now(), f.missing.Lost+n
	f.patience = lossInterval
	return err
}

func followEvent(raw []byte) (ConnectionEvent, error) {
	var e bpfobj.LbFollowEvent
	if _, err := binary.Decode(raw, binary.NativeEndian, &e); err != nil {
		return ConnectionEvent{}, fmt.Errorf("follow connections: event of %d bytes: %w", len(raw), err)
	}
	sinceBoot, err := bootTime()
	if err != nil {
		return ConnectionEvent{}, err
	}
	return fromFollowEvent(e, sinceBoot), nil
}

// fromFollowEvent reads an event; sinceBoot is the wall clock less CLOCK_MONOTONIC.
func fromFollowEvent(e bpfobj.LbFollowEvent, sinceBoot time.Duration) ConnectionEvent {
	out := ConnectionEvent{
		Time:      time.Unix(0, int64(e.Time)+int64(sinceBoot)),
		Server:    netip.AddrPortFrom(fromAddress(e.Addr), swapPort(e.Port)),
		Service:   fromKey(e.Service).String(),
		Forward:   model.Forward(e.Forward).String(),
		State:     stateName(e.State, e.Flags),
		ExpiresIn: max(0, time.Duration(int64(e.Expires-e.Time)).Round(time.Millisecond).Seconds()),
		Over:      e.Over != 0,
		ServerID:  e.Server, ServiceID: e.ServiceId,
	}
	for kind, number := range followKinds {
		if e.Kind == uint8(number) {
			out.Kind = kind
		}
	}
	if out.Kind == ConnectionState {
		out.Was = stateName(e.Was, 0)
	}
	for _, f := range connectionFlags {
		// A connection has the bit of a template when it was answered.
		if e.Flags&uint8(f.bit) != 0 && (f.bit != bpfobj.LbConnFlagCONN_ASSURED || e.Flow.Template != 0) {
			out.Flags = append(out.Flags, f.word)
		}
	}
	if number, call := callNumber(e.Flow); call { // its clients are in another table
		out.Template = &ControllingTemplate{By: "call", Call: number}
	} else {
		out.Client = clientOf(e.Flow)
		out.Virtual = netip.AddrPortFrom(fromAddressOf(e.Flow.Dst, e.Flow.Family), swapPort(e.Flow.Dport))
		if e.Flow.Protocol != 0 {
			out.Protocol = protocolName(e.Flow.Protocol)
		}
	}
	if e.Flow.Template != 0 {
		out.IsTemplate, out.Connections, out.Timeout = true, e.Fwmark, e.Netmask
		out.Forward = "" // its connections have one
	} else {
		out.Template = controllingTemplate(e)
	}
	return out
}

// controllingTemplate is what controls a connection; nil: nothing.
func controllingTemplate(e bpfobj.LbFollowEvent) *ControllingTemplate {
	t := &ControllingTemplate{}
	switch kind := bpfobj.LbTemplateKind(e.Template); kind {
	case bpfobj.LbTemplateKindTEMPLATE_PORT:
		t.By = "port"
	case bpfobj.LbTemplateKindTEMPLATE_ADDRESS:
		t.By = "address"
	case bpfobj.LbTemplateKindTEMPLATE_MARK:
		t.By, t.Mark = "mark", e.Fwmark
	case bpfobj.LbTemplateKindTEMPLATE_CALL:
		t.By, t.Call = "call", e.Fwmark
		return t
	default:
		return nil
	}
	t.Network = clientNetwork(fromAddressOf(e.Flow.Src, e.Flow.Family), e.Netmask, e.Flow.Family)
	return t
}

// CheckConnectionKind refuses what is no kind of event.
func CheckConnectionKind(kind string) error {
	if !slices.Contains(ConnectionKinds(), kind) {
		return fmt.Errorf("unknown kind of event %q (%s)", kind, strings.Join(ConnectionKinds(), ", "))
	}
	return nil
}
