// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
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
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	servers, err := lookupAll[bpfobj.LbServer](d.maps.Servers, set.Servers)
	if err != nil {
		return nil, fmt.Errorf("read the servers: %w", err)
	}
	var all []model.Connection
	add := func(k bpfobj.LbFlow, c bpfobj.LbConn) {
		if int(c.Server) < len(servers) {
			all = append(all, fromConn(k, c, servers[c.Server], now))
		}
	}
	err = eachConn(d.maps.Conns4, func(k bpfobj.LbFlow4, c bpfobj.LbConn) { add(fromFlow4(k), c) })
	if err != nil {
		return nil, err
	}
	err = eachConn(d.maps.Conns6, add)
	return all, err
}

// eachConn calls for every entry of a connection table.
func eachConn[K any](m *ebpf.Map, call func(K, bpfobj.LbConn)) error {
	keys, values := make([]K, connBatch), make([]bpfobj.LbConn, connBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			call(keys[i], values[i])
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

func fromConn(k bpfobj.LbFlow, c bpfobj.LbConn, s bpfobj.LbServer, now uint64) model.Connection {
	return model.Connection{
		Protocol: model.Protocol(k.Protocol),
		State:    stateName(c),
		Expires:  time.Duration(max(0, int64(c.Expires-now))),
		Client:   clientOf(k),
		Virtual:  netip.AddrPortFrom(fromAddressOf(k.Dst, k.Family), swapPort(k.Dport)),
		Server:   netip.AddrPortFrom(fromAddress(s.Addr), swapPort(c.Port)),
	}
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
func stateName(c bpfobj.LbConn) string {
	state := bpfobj.LbConnState(c.State)
	if state == bpfobj.LbConnStateCONN_TEMPLATE {
		if c.Flags&connAssured != 0 {
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

// connAssured is CONN_ASSURED of bpf/types.h.
const connAssured = uint8(bpfobj.LbConnFlagCONN_ASSURED)

// monotonic reads the clock of bpf_ktime_get_ns [ns].
func monotonic() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}
