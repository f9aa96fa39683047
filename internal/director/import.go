// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Why an entry is not inserted into the connection table. Errors of Insert wrap one of
// these, or model.ErrNoService, model.ErrNoServer or model.ErrTableFull.
var (
	ErrConnectionExists = errors.New("the table has an entry of this flow already")
	ErrNoTemplate       = errors.New("there is no template to its server that controls it (templates come before their connections)")
	ErrNoHairpin        = errors.New("the hairpin cannot be made")
	ErrBadConnection    = errors.New("not an entry that the table can have")
)

const (
	// recordBatch is CONN_RECORDS of bpf/types.h.
	recordBatch = 256
	// minExpiry is the shortest time that an inserted entry gets.
	minExpiry = time.Second
	// templateLinger is TEMPLATE_LINGER of bpf/conn_entry.h: the shortest time that a
	// template gets, also from the kernel.
	templateLinger = time.Minute
	// hairpinPort and hairpinPorts are HAIRPIN_PORT and HAIRPIN_PORTS of bpf/hairpin.h.
	hairpinPort, hairpinPorts = 1024, 32768 - 1024
	// maxExpiry is the longest timeout that ipvsadm accepts.
	maxExpiry = 31 * 24 * time.Hour
)

// InsertBatch is how many entries Insert should get at a time: it holds the director's
// lock meanwhile, for some milliseconds.
const InsertBatch = 16 * recordBatch

// Insert enters connections and persistence templates as a packet would have: bound to
// their server, which counts them, with the entry for replies, the hairpin, and the
// template that controls them. A template must precede its connections. Connections of a template and the flags inactive, listed, adopted and replica are
// ignored, as the director computes them. An entry with less than a second left gets a
// second.
//
// errs has the error of each entry, nil for one that was entered. err reports that the
// director cannot be changed; some entries may have been entered then.
func (d *Director) Insert(entries []model.Connection) (errs []error, err error) {
	return d.insert(len(entries), func(in *inserter) error {
		for i := range entries {
			if err := in.add(i, &entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// insert has n entries added, under the director's lock.
func (d *Director) insert(n int, add func(*inserter) error) (errs []error, err error) {
	errs = make([]error, n)
	if err := d.prepare(); err != nil {
		return errs, err
	}
	err = d.exclusively(func() error {
		if err := d.commit(); err != nil {
			return err
		}
		t, err := d.load()
		if err != nil {
			return err
		}
		now, err := monotonic()
		if err != nil {
			return err
		}
		in := inserter{d: d, t: t, now: now, errs: errs}
		if err := add(&in); err != nil {
			return err
		}
		return in.flush()
	})
	return errs, err
}

// inserter collects records for the kernel's program.
type inserter struct {
	d       *Director
	t       *table
	now     uint64
	errs    []error
	records []bpfobj.LbConnRecord
	calls   []bpfobj.LbCall
	at      []int // of the records, in errs
	called  bool  // one of them is a call's template
	kind    bpfobj.LbRecordKind
	updated *int // counts RECORD_UPDATED, if it is not nil
	merged  *Merged
	took    []bool // of each entry whether the table has it as it was told, if it is not nil
	known   bool   // what is not here is not entered (Merge)
	// The numbers of all calls, when one was not found otherwise.
	former map[bpfobj.LbCall][]uint32
}

func (in *inserter) add(i int, c *model.Connection) error {
	if in.errs[i] = checkEntry(c, in.kind); in.errs[i] != nil {
		return nil
	}
	record, call, err := in.record(c)
	var mine entryError
	if errors.As(err, &mine) {
		in.errs[i] = mine.error
		return nil
	}
	if err != nil {
		return err
	}
	in.records, in.calls, in.at = append(in.records, record), append(in.calls, call), append(in.at, i)
	in.called = in.called || call.Length != 0
	if len(in.records) == recordBatch {
		return in.flush()
	}
	return nil
}

// flush runs the program on what was collected.
func (in *inserter) flush() error {
	if len(in.records) == 0 {
		return nil
	}
	if in.called {
		in.former = nil
		if err := putRecords(in.d.maps.CallRecords, in.calls); err != nil {
			return fmt.Errorf("insert connections: %w", err)
		}
	}
	done, err := enterRecords(in.d.maps.ConnRecords, in.d.progs.ImportConns, in.records)
	if err != nil {
		return fmt.Errorf("insert connections: %w", err)
	}
	for i, r := range done {
		in.errs[in.at[i]] = resultError(r.Result)
		if in.took != nil {
			in.took[in.at[i]] = took(r.Result)
		}
		if in.updated != nil && r.Result == bpfobj.LbRecordResultRECORD_UPDATED {
			*in.updated++
		}
		switch r.Result { // of Merge alone
		case bpfobj.LbRecordResultRECORD_DIFFERENT:
			in.merged.Kept++
		case bpfobj.LbRecordResultRECORD_REPLACED:
			in.merged.Replaced++
		}
	}
	in.records, in.calls, in.at, in.called = in.records[:0], in.calls[:0], in.at[:0], false
	return nil
}

// took reports whether the table has become what a record says.
func took(r bpfobj.LbRecordResult) bool {
	return r == bpfobj.LbRecordResultRECORD_ENTERED || r == bpfobj.LbRecordResultRECORD_UPDATED || r == bpfobj.LbRecordResultRECORD_REPLACED
}

// resultError is what became of a record.
func resultError(r bpfobj.LbRecordResult) error {
	switch r {
	case bpfobj.LbRecordResultRECORD_ENTERED, bpfobj.LbRecordResultRECORD_UPDATED, bpfobj.LbRecordResultRECORD_OUTDATED,
		bpfobj.LbRecordResultRECORD_KEPT, bpfobj.LbRecordResultRECORD_DIFFERENT, bpfobj.LbRecordResultRECORD_REPLACED:
		return nil
	case bpfobj.LbRecordResultRECORD_EXISTS:
		return ErrConnectionExists
	case bpfobj.LbRecordResultRECORD_NO_ROOM:
		return fmt.Errorf("%w: no room for connections (save with ipvsadm -Sn, imbang detach, imbang attach --max-connections MORE, restore with ipvsadm -R)", model.ErrTableFull)
	case bpfobj.LbRecordResultRECORD_NO_SERVER:
		return model.ErrNoServer
	case bpfobj.LbRecordResultRECORD_NO_TEMPLATE:
		return ErrNoTemplate
	case bpfobj.LbRecordResultRECORD_NO_HAIRPIN:
		return fmt.Errorf("%w: its port is another connection's", ErrNoHairpin)
	}
	return fmt.Errorf("the program answers %d", r)
}

// putRecords writes values for a program of records; what is left of the array has none.
func putRecords[V any](m *ebpf.Map, values []V) error {
	all, numbers := make([]V, recordBatch), make([]uint32, recordBatch)
	copy(all, values)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	_, err := m.BatchUpdate(numbers, all, nil)
	return err
}

// enterRecords runs a program on records, and reads them with their results. The
// director's lock is held.
func enterRecords(buffer *ebpf.Map, p *ebpf.Program, records []bpfobj.LbConnRecord) ([]bpfobj.LbConnRecord, error) {
	if err := putRecords(buffer, records); err != nil {
		return nil, err
	}
	if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
		return nil, err
	}
	return lookupArray[bpfobj.LbConnRecord](buffer, uint32(len(records)))
}

// entryError is one of an entry, not of the director.
type entryError struct{ error }

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadConnection, fmt.Sprintf(format, args...))
}

// checkEntry refuses what no packet could have made, as far as an entry itself shows.
func checkEntry(c *model.Connection, kind bpfobj.LbRecordKind) error {
	if _, ok := stateNumber(c); !ok {
		return bad("%s has no state %q", entryNoun(c), c.State)
	}
	if c.Expires < 0 || c.Expires > maxExpiry {
		return bad("it expires in %v: want 0 to %v", c.Expires, maxExpiry)
	}
	family := model.FamilyOf(c.Virtual.Addr())
	if !c.Client.IsValid() || !c.Virtual.IsValid() || model.FamilyOf(c.Client.Addr()) != family || c.Service.Family != family {
		return bad("client %s, virtual address %s and service %s are not of one family", c.Client, c.Virtual, c.Service)
	}
	for _, a := range []netip.Addr{c.Client.Addr(), c.Virtual.Addr(), c.RealServer.Addr()} {
		if a.Is4In6() || a.Zone() != "" {
			return bad("the address %s: want it without a zone, and not an IPv4 address as one of IPv6", a)
		}
	}
	if c.Server.Addr() != c.RealServer.Addr() {
		return bad("its packets go to %s, its server is %s", c.Server, c.RealServer)
	}
	if c.Template {
		return checkTemplate(c)
	}
	return checkConnection(c, kind)
}

func entryNoun(c *model.Connection) string {
	if c.Template {
		return "a template"
	}
	return fmt.Sprintf("a connection of protocol %s", cmp.Or(c.Protocol.Word(), "0"))
}

func checkTemplate(c *model.Connection) error {
	k := c.Service
	if c.Timeout < 0 || c.Timeout > maxExpiry || c.Timeout%time.Second != 0 {
		return bad("a template's timeout is %v: want whole seconds, at most %v", c.Timeout, maxExpiry)
	}
	if c.Client.Port() != 0 {
		return bad("a template's client has port %d: want 0", c.Client.Port())
	}
	if c.Engine == "" && c.EngineData != "" || c.Engine != "" && (engines[c.Engine] == 0 || c.EngineData == "" || len(c.EngineData) > len(bpfobj.LbCall{}.Id)) {
		return bad("engine %q with data %q", c.Engine, c.EngineData)
	}
	if c.Control != nil || c.Hairpin.IsValid() || c.Flags&(model.ConnHairpin|model.ConnReplied) != 0 {
		return bad("a template with what only connections have: hairpin, a template of its own, a reply")
	}
	port := c.Virtual.Port()
	if c.Flags&model.ConnInvalid != 0 {
		if port != invalidPort {
			return bad("an invalid template has port %d: want %d", port, invalidPort)
		}
		port = templatePort(k)
	}
	switch {
	case k.Mark != 0:
		if want := markAddress(k); c.Protocol != 0 || c.Virtual.Addr() != want || port != 0 {
			return bad("a template of %s has protocol 0 and the virtual address %s, port 0", k, want)
		}
	case c.Protocol != k.Protocol || c.Virtual.Addr() != k.Addr || port != templatePort(k):
		return bad("a template to %s/%s is not of service %s", c.Virtual, c.Protocol.Word(), k)
	}
	return nil
}

func checkConnection(c *model.Connection, kind bpfobj.LbRecordKind) error {
	k, port := c.Service, c.Virtual.Port()
	if c.Engine != "" || c.EngineData != "" || c.Flags&model.ConnInvalid != 0 {
		return bad("a connection with what only templates have: an engine, the flag invalid")
	}
	if k.Mark == 0 {
		// What a master told does not say whether a template controls it.
		persistent := c.Control != nil || kind == bpfobj.LbRecordKindRECORD_TOLD || kind == bpfobj.LbRecordKindRECORD_ENDED
		anyPort := k.Port == 0 || k.Port == ftpPort && persistent
		if c.Protocol != k.Protocol || c.Virtual.Addr() != k.Addr || port != k.Port && !anyPort {
			return bad("a connection to %s/%s is not of service %s", c.Virtual, c.Protocol.Word(), k)
		}
	}
	if !c.Forward.Known() {
		return bad("unknown forwarding method %s", c.Forward)
	}
	if !c.Forward.RewritesPort() && c.Server.Port() != port {
		return bad("%s does not rewrite the port: want %d, not %d", c.Forward, port, c.Server.Port())
	}
	if !c.Forward.Encapsulates() && model.FamilyOf(c.Server.Addr()) != k.Family {
		return bad("%s does not lead to a server of the other family", c.Forward)
	}
	if port := c.Hairpin.Port(); c.Hairpin.IsValid() && (c.Hairpin.Addr().IsUnspecified() || port < hairpinPort || port >= hairpinPort+hairpinPorts) {
		return bad("the hairpin %s: want an address of the director and a port from %d to %d", c.Hairpin, hairpinPort, hairpinPort+hairpinPorts-1)
	}
	if hairpin := c.Flags&model.ConnHairpin != 0; hairpin != c.Hairpin.IsValid() || hairpin && !c.Forward.Hairpins() {
		return bad("a hairpin has the flag hairpin, the director's address and port, and the method masquerading")
	}
	if control := c.Control; control != nil {
		if kind := kindOf(k); control.Kind != kind && control.Kind != model.TemplateCall {
			return bad("a template of kind %s does not control connections of service %s", control.Kind, k)
		}
		if (control.Kind == model.TemplateCall) != (control.CallID != "") || len(control.CallID) > len(bpfobj.LbCall{}.Id) {
			return bad("template of kind %s with Call-ID %q", control.Kind, control.CallID)
		}
		if k.Family == model.IPv6 && control.Netmask > 128 {
			return bad("a prefix of %d bits", control.Netmask)
		}
	}
	return nil
}

// kindOf is the kind of the templates that a service of this key has without an engine.
func kindOf(k model.ServiceKey) model.TemplateKind {
	return model.TemplateKind(templateKind(model.Service{Key: k, Flags: model.Persistent}))
}

// templatePort is the port in the keys of a service's templates.
func templatePort(k model.ServiceKey) uint16 {
	if kindOf(k) == model.TemplatePort {
		return k.Port
	}
	return 0
}

// markAddress is what the templates of a mark have as virtual address (template_flow of
// bpf/template.h).
func markAddress(k model.ServiceKey) netip.Addr {
	b := [16]byte{byte(k.Mark >> 24), byte(k.Mark >> 16), byte(k.Mark >> 8), byte(k.Mark)}
	if k.Family == model.IPv6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

// stateNumber is the number of an entry's state.
func stateNumber(c *model.Connection) (uint8, bool) {
	if c.Template {
		return uint8(bpfobj.LbConnStateCONN_TEMPLATE), c.State == assured || c.State == stateNames()[bpfobj.LbConnStateCONN_TEMPLATE]
	}
	first, end := bpfobj.LbConnStateTCP_NONE, bpfobj.LbConnStateTCP_NONE
	switch c.Protocol {
	case model.TCP:
		end = bpfobj.LbConnStateCONN_UDP
	case model.UDP:
		first, end = bpfobj.LbConnStateCONN_UDP, bpfobj.LbConnStateCONN_TEMPLATE
	case model.SCTP:
		first, end = bpfobj.LbConnStateSCTP_NONE, bpfobj.LbConnStateCONN_STATES
	}
	for n := first; n < end; n++ {
		if stateNames()[n] == c.State {
			return uint8(n), true
		}
	}
	return 0, false
}

// record is what the kernel's program is told of an entry.
func (in *inserter) record(c *model.Connection) (r bpfobj.LbConnRecord, call bpfobj.LbCall, err error) {
	id, err := in.server(c)
	if err != nil {
		return r, call, err
	}
	state, _ := stateNumber(c)
	r = bpfobj.LbConnRecord{
		Flow: bpfobj.LbFlow{
			Src: toAddress(c.Client.Addr()), Dst: toAddress(c.Virtual.Addr()),
			Sport: swapPort(c.Client.Port()), Dport: swapPort(c.Virtual.Port()),
			Protocol: uint8(c.Protocol), Family: uint8(c.Service.Family),
		},
		Server: id, Expires: in.now + uint64(max(c.Expires, minExpiry)),
		Port: swapPort(c.Server.Port()), State: state, Forward: uint8(c.Forward), InPackets: c.InPackets, Kind: uint8(in.kind),
		Idle: uint32(min(max(c.Idle, 0), maxExpiry) / time.Millisecond),
	}
	if in.known {
		r.Known = 1
	}
	if c.Template {
		if in.kind == bpfobj.LbRecordKindRECORD_NEW { // its connections come later, and it must be there then
			r.Expires = in.now + uint64(max(c.Expires, templateLinger))
		}
		call = templateRecord(c, &r)
		if c.Engine != "" && r.Port == invalidPort { // no call leads to it
			err = in.checkFormer(call, id)
		}
		return r, call, err
	}
	r.Fwmark = c.Service.Mark
	if c.Flags&model.ConnReplied != 0 {
		r.Flags |= connReplied
	}
	if c.Hairpin.IsValid() {
		if source := fromAddress(in.t.servers[id].Source); source != c.Hairpin.Addr() {
			return r, call, entryError{fmt.Errorf("%w: its server takes %s for the client, and this director's packets come from %s", ErrNoHairpin, c.Hairpin, source)}
		}
		r.Flags |= connHairpin
		r.Hairpin, r.HairpinPort = toAddress(c.Hairpin.Addr()), swapPort(c.Hairpin.Port())
	}
	if c.Control != nil {
		r.Template, r.Netmask = uint8(c.Control.Kind), toNetmask(c.Control.Netmask, c.Service.Family)
		if c.Control.Kind == model.TemplateCall {
			r.Fwmark, err = in.callNumber(c, id)
		}
	}
	return r, call, err
}

// server finds the server of an entry.
func (in *inserter) server(c *model.Connection) (uint32, error) {
	key := toKey(c.Service)
	// Then its server need not be in the table.
	told := in.kind == bpfobj.LbRecordKindRECORD_TOLD || in.kind == bpfobj.LbRecordKindRECORD_ENDED
	if in.t.services[key] == nil && !told {
		return 0, entryError{fmt.Errorf("service %s: %w", c.Service, model.ErrNoService)}
	}
	id, ok := in.t.find(serverKey{key, toAddress(c.RealServer.Addr()), swapPort(c.RealServer.Port())})
	if !ok || !available(in.t.servers[id]) && !told {
		return 0, entryError{fmt.Errorf("service %s: server %s: %w", c.Service, c.RealServer, model.ErrNoServer)}
	}
	return id, nil
}

// templateRecord completes the record of a template, and says which call it is of.
func templateRecord(c *model.Connection, r *bpfobj.LbConnRecord) (call bpfobj.LbCall) {
	r.Flow.Template = 1
	r.Forward = 0 // as packets make it
	r.Netmask = uint32(c.Timeout / time.Second)
	if c.State == assured {
		r.Flags |= connAssured
	}
	invalid := c.Flags&model.ConnInvalid != 0
	if invalid {
		r.Port = invalidPort
	}
	if c.Engine != "" {
		r.Template = uint8(bpfobj.LbTemplateKindTEMPLATE_CALL)
		r.Flow.Dport = swapPort(templatePort(c.Service))
		return newCall(r.Flow, c.EngineData)
	}
	if invalid { // template_set_aside of bpf/template.h
		r.Flow.Dport = invalidPort
		r.Flow.Sport, r.Flow.Pad = uint16(r.Server&math.MaxUint16), uint8(r.Server>>16)
	}
	return call
}

// newCall is a call as the kernel has it.
func newCall(clients bpfobj.LbFlow, id string) bpfobj.LbCall {
	call := bpfobj.LbCall{Clients: clients, Length: uint8(len(id))}
	for i := range len(id) {
		call.Id[i] = id[i]
	}
	return call
}

// callNumber finds the number of the call that a connection to a server is of.
func (in *inserter) callNumber(c *model.Connection, server uint32) (number uint32, err error) {
	if in.called { // its template may be among those that wait
		if err := in.flush(); err != nil {
			return 0, err
		}
	}
	f := c.Service.Family
	clients := bpfobj.LbFlow{
		Src: toAddress(maskedClient(c.Client.Addr(), c.Control.Netmask)), Template: 1, Family: uint8(f),
		Dport: swapPort(templatePort(c.Service)),
	}
	if c.Service.Mark != 0 {
		clients.Dst = toAddress(markAddress(c.Service))
	} else {
		clients.Dst, clients.Protocol = toAddress(c.Service.Addr), uint8(c.Protocol)
	}
	call := newCall(clients, c.Control.CallID)
	err = in.d.maps.Calls.Lookup(call, &number)
	if err == nil {
		var leads bool
		if leads, err = in.callLeads(number, server); leads {
			return number, nil
		}
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read a call: %w", err)
	}
	return in.formerCall(c, call, server)
}

// callLeads reports whether the template of a number is to this server.
func (in *inserter) callLeads(number, server uint32) (bool, error) {
	call, err := in.d.call(number)
	if call == nil || err != nil {
		return false, err
	}
	key := bpfobj.LbFlow{ // call_flow of bpf/call.h
		Src: toAddress(netip.IPv4Unspecified()), Dst: toAddress(netip.IPv4Unspecified()),
		Protocol: callProtocol, Template: 1, Family: call.Clients.Family,
	}
	key.Src.Word[3] = number
	t, err := in.d.connOf(key)
	return t != nil && t.Server == server, err
}

// formerCall finds the number of a call whose template is invalid: no call leads there.
func (in *inserter) formerCall(c *model.Connection, call bpfobj.LbCall, server uint32) (uint32, error) {
	if err := in.readCalls(); err != nil {
		return 0, err
	}
	for _, number := range in.former[call] {
		if leads, err := in.callLeads(number, server); leads || err != nil {
			return number, err
		}
	}
	return 0, entryError{fmt.Errorf("call %q: %w", c.Control.CallID, ErrNoTemplate)}
}

// readCalls reads the numbers of all calls.
func (in *inserter) readCalls() error {
	if in.former != nil {
		return nil
	}
	numbers, calls, err := hashAll[uint32, bpfobj.LbCall](in.d.maps.CallNumbers, 0)
	if err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	in.former = map[bpfobj.LbCall][]uint32{}
	for i, n := range numbers {
		in.former[calls[i]] = append(in.former[calls[i]], n)
	}
	return nil
}

// checkFormer refuses an invalid template of a call whose server has one already.
func (in *inserter) checkFormer(call bpfobj.LbCall, server uint32) error {
	if slices.Contains(in.calls, call) { // it may be among those that wait
		if err := in.flush(); err != nil {
			return err
		}
	}
	if err := in.readCalls(); err != nil {
		return err
	}
	for _, number := range in.former[call] {
		var now uint32
		if in.d.maps.Calls.Lookup(call, &now) == nil && now == number {
			continue // the valid one
		}
		leads, err := in.callLeads(number, server)
		if err != nil {
			return err
		}
		if leads {
			return entryError{ErrConnectionExists}
		}
	}
	return nil
}

// maskedClient is address_mask of bpf/template.h.
func maskedClient(a netip.Addr, mask model.Netmask) netip.Addr {
	if a.Is4() {
		b := a.As4()
		for i := range b {
			b[i] &= byte(mask >> (24 - 8*i))
		}
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	for i := range b {
		bits := min(max(int(mask)-8*i, 0), 8)
		b[i] &= ^byte(0xff >> bits)
	}
	return netip.AddrFrom16(b)
}
