// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// connBatch is how many connections one system call reads.
const connBatch = 4096

// Connections lists the connection table. Connections come and go meanwhile:
// the list is no snapshot.
func (d *Director) Connections() ([]model.Connection, error) {
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	var servers []bpfobj.LbServer
	err = d.read(func(t *table) error {
		servers = slices.Clone(t.servers)
		return nil
	})
	if err != nil {
		return nil, err
	}
	calls, err := d.calls()
	if err != nil {
		return nil, err
	}
	var all []model.Connection
	add := func(c bpfobj.LbConn6) {
		if c.Server >= d.maps.Servers.MaxEntries() || c.Flags&connDead != 0 {
			return
		}
		if int(c.Server) >= len(servers) { // it was added meanwhile
			servers = append(servers, make([]bpfobj.LbServer, int(c.Server)+1-len(servers))...)
		}
		s := &servers[c.Server]
		if never(*s) && d.maps.Servers.Lookup(c.Server, s) != nil {
			return
		}
		if number, ok := callNumber(c.Flow); !ok {
			all = append(all, fromConn(c, *s, now))
		} else if call, ok := calls[number]; ok {
			all = append(all, fromCall(call, c, *s, now))
		}
	}
	err = eachConn[bpfobj.LbFlow4](d.maps.Conns4, func(c bpfobj.LbConn4) { add(widen(c)) })
	if err != nil {
		return nil, err
	}
	err = eachConn[bpfobj.LbFlow](d.maps.Conns6, add)
	return all, err
}

// eachConn calls for every entry of a connection table.
func eachConn[K, V any](m *ebpf.Map, call func(V)) error {
	keys, values := make([]K, connBatch), make([]V, connBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			call(values[i])
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

// widen is a connection of IPv4 as one of IPv6.
func widen(c bpfobj.LbConn4) bpfobj.LbConn6 {
	return bpfobj.LbConn6{
		Flow: fromFlow4(c.Flow), Expires: c.Expires, Tick: c.Tick, Number: c.Number, Server: c.Server,
		Port: c.Port, State: c.State, Flags: c.Flags, Template: c.Template, Forward: c.Forward,
		InPackets: c.InPackets, Fwmark: c.Fwmark, Netmask: c.Netmask,
	}
}

func fromConn(c bpfobj.LbConn6, s bpfobj.LbServer, now uint64) model.Connection {
	k := c.Flow
	return model.Connection{
		Protocol: model.Protocol(k.Protocol),
		State:    stateName(c.State, c.Flags),
		Expires:  time.Duration(max(0, int64(c.Expires-now))),
		Client:   clientOf(k),
		Virtual:  netip.AddrPortFrom(fromAddressOf(k.Dst, k.Family), swapPort(k.Dport)),
		Server:   netip.AddrPortFrom(fromAddress(s.Addr), swapPort(c.Port)),
	}
}

// callNumber is the number of the call that a template is of, if it is of one.
func callNumber(k bpfobj.LbFlow) (number uint32, ok bool) {
	return k.Src.Word[3], k.Template != 0 && k.Protocol == callProtocol
}

// callProtocol is CALL_PROTOCOL of bpf/types.h.
const callProtocol = 0xff

// calls reads the calls that have a template, by number. There is none as long as
// no service ever had an engine.
func (d *Director) calls() (map[uint32]bpfobj.LbCall, error) {
	numbers, calls, err := hashAll[uint32, bpfobj.LbCall](d.maps.CallNumbers, 0)
	if err != nil {
		return nil, fmt.Errorf("read calls: %w", err)
	}
	all := make(map[uint32]bpfobj.LbCall, len(numbers))
	for i, number := range numbers {
		all[number] = calls[i]
	}
	return all, nil
}

// invalidPort is TEMPLATE_INVALID of bpf/template.h.
const invalidPort = 0xffff

// fromCall is the template of a call.
func fromCall(call bpfobj.LbCall, c bpfobj.LbConn6, s bpfobj.LbServer, now uint64) model.Connection {
	if c.Port == invalidPort {
		call.Clients.Dport = invalidPort
	}
	c.Flow = call.Clients
	out := fromConn(c, s, now)
	out.Engine = engineName(uint8(bpfobj.LbEngineENGINE_SIP))
	id := make([]byte, call.Length)
	for i := range id {
		id[i] = byte(call.Id[i])
	}
	out.EngineData = string(id)
	return out
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
	state := bpfobj.LbConnState(number)
	if state == bpfobj.LbConnStateCONN_TEMPLATE {
		if flags&connAssured != 0 {
			return "ASSURED"
		}
		return "NONE"
	}
	name := strings.TrimPrefix(state.String(), "CONN_")
	if sctp, ok := strings.CutPrefix(name, "SCTP_"); ok {
		return sctpName.Replace(sctp)
	}
	return strings.TrimPrefix(name, "TCP_")
}

// sctpName turns a state's C name into the one that Linux lists
// (sctp_state_name_table of ip_vs_proto_sctp.c).
var sctpName = strings.NewReplacer("COOKIE_", "C-", "SHUTDOWN_", "S-", "_", "-")

// Of enum conn_flag in bpf/types.h.
const (
	connAssured = uint8(bpfobj.LbConnFlagCONN_ASSURED)
	connDead    = uint8(bpfobj.LbConnFlagCONN_DEAD)
)

// monotonic reads the clock of bpf_ktime_get_ns [ns].
func monotonic() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}
