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
	var all []model.Connection
	keys, values := make([]bpfobj.LbFlow4, connBatch), make([]bpfobj.LbConn, connBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := d.maps.Conns4.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all = append(all, fromConn(keys[i], values[i], now))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read connections: %w", err)
		}
	}
}

// TableSize is what a listing's banner says. It is the number of hash buckets
// of Linux's default connection table; scripts compare whole banners.
func (d *Director) TableSize() int { return 4096 }

func fromConn(k bpfobj.LbFlow4, c bpfobj.LbConn, now uint64) model.Connection {
	return model.Connection{
		Protocol: model.Protocol(k.Protocol),
		State:    stateName(c),
		Expires:  time.Duration(max(0, int64(c.Expires-now))),
		Client:   clientOf(k),
		Virtual:  netip.AddrPortFrom(fromAddress4(k.Dst), swapPort(k.Dport)),
		Server:   netip.AddrPortFrom(fromAddress(c.Addr), swapPort(c.Port)),
	}
}

// clientOf is where a connection comes from; a template's clients have no
// port (its key may hold something else in its place).
func clientOf(k bpfobj.LbFlow4) netip.AddrPort {
	port := swapPort(k.Sport)
	if k.Template != 0 {
		port = 0
	}
	return netip.AddrPortFrom(fromAddress4(k.Src), port)
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
	return strings.TrimPrefix(name, "TCP_")
}

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
