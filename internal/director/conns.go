// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Connections reads the connection table, and yields the entries that a filter
// accepts. Memory use does not depend on the number of entries. An error is
// yielded last.
//
// Packets and timers change the table meanwhile; the result is not a snapshot:
//
//   - An entry that exists during the whole iteration is yielded exactly once: it stays in its
//     line, and lines are read in their order.
//   - An entry that is inserted or removed meanwhile may be yielded or not. If a flow is
//     opened again meanwhile, both of its connections may be. Dead entries are not yielded, nor
//     those whose time is over.
//   - The fields of an entry are copied while packets write: port, state, flags and
//     method are of one moment, the time of expiry may be of another.
//   - The server is the one that has the entry's id when its page has been read. If the
//     entry and its deleted server's last other connection ended in between, the id may
//     have been given to another server.
//
// It takes no lock; the consumer may wait for any time between two entries.
func (d *Director) Connections(f ConnectionFilter) iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		r := connReader{d: d, filter: f, yield: yield}
		err := r.read()
		if err != nil && !errors.Is(err, errStopped) {
			yield(model.Connection{}, err)
		}
	}
}

// CountConnections counts what Connections would yield.
func (d *Director) CountConnections(f ConnectionFilter) (n uint64, err error) {
	for _, err := range d.Connections(f) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// HasTemplates reports whether a server counts a persistence template.
func (d *Director) HasTemplates() (bool, error) {
	set, err := d.config()
	if err != nil {
		return false, err
	}
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, set.Servers)
	if err != nil {
		return false, fmt.Errorf("read the servers' connections: %w", err)
	}
	return slices.ContainsFunc(loads, func(l bpfobj.LbLoad) bool { return l.Persistent != 0 }), nil
}

// errStopped says that the consumer of an iterator has stopped it.
var errStopped = errors.New("stopped")

// connReader reads the table for one consumer.
type connReader struct {
	d       *Director
	filter  ConnectionFilter
	yield   func(model.Connection, error) bool
	servers []bpfobj.LbServer
	seen    uint64 // the generation that they are of, if it is even
	now     uint64
	page    uint32 // that was read last
}

func (r *connReader) read() error {
	blocks, err := r.d.newBlockReader()
	if err != nil {
		return err
	}
	return blocks.eachBlock(context.Background(), r.block)
}

// block yields the entries of one.
func (r *connReader) block(b *block) error {
	if step(b.kind()) == 0 {
		return nil
	}
	if page := b.number / pageBlocks; r.servers == nil || page != r.page {
		r.page = page
		if err := r.refresh(); err != nil {
			return err
		}
	}
	return b.entries(r.entry)
}

// refresh brings the time, and the servers if they were edited, to what they are
// behind a batch: a consumer may have let much time pass since the last one.
func (r *connReader) refresh() (err error) {
	if r.now, err = monotonic(); err != nil {
		return err
	}
	set, err := r.d.current()
	if err != nil {
		return err
	}
	if r.servers != nil && r.seen == set.Generation && !beingEdited(r.seen) {
		return nil
	}
	fence()
	r.seen = set.Generation
	if r.servers, err = lookupAll[bpfobj.LbServer](r.d.maps.Servers, set.Servers); err != nil {
		return fmt.Errorf("read servers: %w", err)
	}
	return nil
}

// entry yields one, if the filter accepts it.
func (r *connReader) entry(c *entry) error {
	if c.Flags&connDead != 0 || lapsed(c, r.now) || c.Server >= r.d.maps.Servers.MaxEntries() || !r.filter.kind(c.Flow.Template != 0) {
		return nil
	}
	if int(c.Server) >= len(r.servers) { // it was added meanwhile
		r.servers = append(r.servers, make([]bpfobj.LbServer, int(c.Server)+1-len(r.servers))...)
	}
	s := &r.servers[c.Server]
	if never(*s) && r.d.maps.Servers.Lookup(c.Server, s) != nil {
		return nil
	}
	out, ok, err := r.d.fromEntry(c, s, r.now)
	if err != nil || !ok || !r.filter.accepts(&out) {
		return err
	}
	if !r.yield(out, nil) {
		return errStopped
	}
	return nil
}

// fromEntry is an entry of the connection table for its readers; not a template whose
// call is gone, and so is it.
func (d *Director) fromEntry(c *entry, s *bpfobj.LbServer, now uint64) (out model.Connection, ok bool, err error) {
	if number, is := callNumber(c.Flow); is {
		call, err := d.call(number)
		if call == nil || err != nil {
			return out, false, err
		}
		return fromCall(call, *c, *s, now), true, nil
	}
	out = fromConn(*c, *s, now)
	if out.Control != nil && out.Control.Kind == model.TemplateCall {
		call, err := d.call(c.Fwmark)
		if err != nil {
			return out, false, err
		}
		if call != nil {
			out.Control.CallID = callIDOf(call)
		}
	}
	if out.Flags&model.ConnHairpin != 0 {
		var reverse bpfobj.LbFlow
		err := d.maps.Hairpins.Lookup(c.Flow, &reverse)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return out, false, fmt.Errorf("read a hairpin: %w", err)
		}
		if err == nil {
			out.Hairpin = netip.AddrPortFrom(fromAddress(reverse.Dst), swapPort(reverse.Dport))
		}
	}
	return out, true, nil
}

// call is that of a number; nil if there is none any more.
func (d *Director) call(number uint32) (*bpfobj.LbCall, error) {
	var call bpfobj.LbCall
	err := d.maps.CallNumbers.Lookup(number, &call)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a call: %w", err)
	}
	return &call, nil
}

// connBatch is how many entries one system call reads.
const connBatch = 4096

// eachRead reads a hash map, of elements whose types are known when it runs: it reads some into two
// slices, calls with the number of those that were read, and goes on.
func eachRead(m *ebpf.Map, keys, values any, call func(n int) error) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if n > 0 {
			if err := call(n); err != nil {
				return err
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read connections: %w", err)
		}
	}
}

// TableSize is what a listing's banner says. It is the number of hash buckets
// of Linux's default connection table; scripts compare whole banners.
func (d *Director) TableSize() int { return 4096 }

// lapsed reports whether an entry's time is over, and the sweep is still to come: conn_lapsed of
// bpf/conn_entry.h.
func lapsed(c *entry, now uint64) bool {
	template := bpfobj.LbConnState(c.State) == bpfobj.LbConnStateCONN_TEMPLATE
	return c.Expires <= now && !(template && c.Fwmark != 0)
}

func fromConn(c entry, s bpfobj.LbServer, now uint64) model.Connection {
	k := c.Flow
	addr := fromAddress(s.Addr)
	out := model.Connection{
		Protocol:   model.Protocol(k.Protocol),
		State:      stateName(c.State, c.Flags),
		Expires:    time.Duration(max(0, int64(c.Expires-now))),
		Client:     clientOf(k),
		Virtual:    netip.AddrPortFrom(fromAddressOf(k.Dst, k.Family), swapPort(k.Dport)),
		Server:     netip.AddrPortFrom(addr, swapPort(c.Port)),
		Service:    fromKey(s.Owner),
		RealServer: netip.AddrPortFrom(addr, swapPort(s.Port)),
		Forward:    model.Forward(c.Forward),
		Flags:      fromConnFlags(c.Flags),
		InPackets:  c.InPackets,
	}
	if untouched(&c) {
		out.Flags |= model.ConnReplica
	}
	if k.Template != 0 {
		out.Template, out.Timeout, out.Connections = true, time.Duration(c.Netmask)*time.Second, c.Fwmark
		out.Forward = model.Forward(s.Forward)
		if c.Port == invalidPort && (k.Dport == invalidPort || k.Protocol == callProtocol) {
			out.Flags |= model.ConnInvalid
		}
		return out
	}
	if c.Template != uint8(bpfobj.LbTemplateKindTEMPLATE_NONE) {
		out.Control = &model.Control{Kind: model.TemplateKind(c.Template), Netmask: fromNetmask(c.Netmask, model.Family(k.Family))}
	}
	return out
}

// TOLD_REPLICA and TOLD_SLACK of bpf/told.h, and TICK_SHIFT of bpf/clock.h.
const (
	toldReplica = 1
	toldSlack   = 5
	tickShift   = 26
)

// untouched reports whether an entry is a replica whose end no packet has moved:
// told_untouched of bpf/told.h.
func untouched(c *entry) bool {
	if c.Told&toldReplica == 0 || c.ToldEnd == 0 {
		return false
	}
	moved := int16(max(uint16(c.Expires>>tickShift), 1) - c.ToldEnd)
	return moved > -toldSlack && moved < toldSlack
}

// connFlags are the flags of enum conn_flag that readers see.
var connFlags = []struct {
	kernel uint8
	model  model.ConnFlags
}{
	{uint8(bpfobj.LbConnFlagCONN_INACTIVE), model.ConnInactive},
	{uint8(bpfobj.LbConnFlagCONN_HAIRPIN), model.ConnHairpin},
	{uint8(bpfobj.LbConnFlagCONN_REPLIED), model.ConnReplied},
	{uint8(bpfobj.LbConnFlagCONN_LISTED), model.ConnListed},
	{uint8(bpfobj.LbConnFlagCONN_ADOPTED), model.ConnAdopted},
}

func fromConnFlags(flags uint8) (out model.ConnFlags) {
	for _, f := range connFlags {
		if flags&f.kernel != 0 {
			out |= f.model
		}
	}
	return out
}

// callNumber is the number of the call that a template is of, if it is of one.
func callNumber(k bpfobj.LbFlow) (number uint32, ok bool) {
	return k.Src.Word[3], k.Template != 0 && k.Protocol == callProtocol
}

// callProtocol is CALL_PROTOCOL of bpf/types.h.
const callProtocol = 0xff

// invalidPort is TEMPLATE_INVALID of bpf/template.h.
const invalidPort = 0xffff

// fromCall is the template of a call.
func fromCall(call *bpfobj.LbCall, c entry, s bpfobj.LbServer, now uint64) model.Connection {
	c.Flow = call.Clients
	if c.Port == invalidPort {
		c.Flow.Dport = invalidPort
	}
	out := fromConn(c, s, now)
	out.Engine = engineName(uint8(bpfobj.LbEngineENGINE_SIP))
	out.EngineData = callIDOf(call)
	return out
}

func callIDOf(call *bpfobj.LbCall) string {
	id := make([]byte, call.Length)
	for i := range id {
		id[i] = call.Id[i]
	}
	return string(id)
}

// clientOf is where a connection comes from; a template's clients have no
// port (its key may hold something else in its place).
func clientOf(k bpfobj.LbFlow) netip.AddrPort {
	port := swapPort(k.Sport)
	if k.Template != 0 {
		port = 0
	}
	return netip.AddrPortFrom(fromAddressOf(k.Src, k.Family), port)
}

// stateName is the word Linux has for a connection's state: without the
// protocol, and for a template whether it ever led to a real connection.
func stateName(number, flags uint8) string {
	if bpfobj.LbConnState(number) == bpfobj.LbConnStateCONN_TEMPLATE && flags&connAssured != 0 {
		return assured
	}
	if names := stateNames(); int(number) < len(names) {
		return names[number]
	}
	return fmt.Sprintf("state %d", number)
}

// assured is the state of a template that led to a real connection.
const assured = "ASSURED"

// stateNames are Linux's, by number. Commands that show no state do not wait for them.
var stateNames = sync.OnceValue(func() []string {
	names := make([]string, bpfobj.LbConnStateCONN_STATES)
	for i := range names {
		state := bpfobj.LbConnState(i)
		name := strings.TrimPrefix(state.String(), "CONN_")
		if sctp, ok := strings.CutPrefix(name, "SCTP_"); ok {
			name = sctpName.Replace(sctp)
		}
		names[i] = strings.TrimPrefix(name, "TCP_")
	}
	names[bpfobj.LbConnStateCONN_TEMPLATE] = "NONE"
	return names
})

// sctpName turns a state's C name into the one that Linux lists
// (sctp_state_name_table of ip_vs_proto_sctp.c).
var sctpName = strings.NewReplacer("COOKIE_", "C-", "SHUTDOWN_", "S-", "_", "-")

// ConnectionStates are the names that connections' states have, of all protocols and of
// templates.
func ConnectionStates() []string {
	names := append(slices.Clone(stateNames()), assured)
	slices.Sort(names)
	return slices.Compact(names)
}

// Of enum conn_flag in bpf/types.h.
const (
	connAssured = uint8(bpfobj.LbConnFlagCONN_ASSURED)
	connReplied = uint8(bpfobj.LbConnFlagCONN_REPLIED)
	connDead    = uint8(bpfobj.LbConnFlagCONN_DEAD)
	connLeft    = connDead | uint8(bpfobj.LbConnFlagCONN_LEFT)
)

// monotonic reads the clock of bpf_ktime_get_ns [ns].
func monotonic() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}
