// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// defaultTimeouts are Linux's (tcp_timeouts of ip_vs_proto_tcp.c and
// udp_timeouts of ip_vs_proto_udp.c, sctp_timeouts of
// ip_vs_proto_sctp.c).
var defaultTimeouts = map[bpfobj.LbConnState]time.Duration{
	bpfobj.LbConnStateTCP_NONE:        2 * time.Second,
	bpfobj.LbConnStateTCP_ESTABLISHED: 15 * time.Minute,
	bpfobj.LbConnStateTCP_SYN_SENT:    2 * time.Minute,
	bpfobj.LbConnStateTCP_SYN_RECV:    time.Minute,
	bpfobj.LbConnStateTCP_FIN_WAIT:    2 * time.Minute,
	bpfobj.LbConnStateTCP_TIME_WAIT:   2 * time.Minute,
	bpfobj.LbConnStateTCP_CLOSE:       10 * time.Second,
	bpfobj.LbConnStateTCP_CLOSE_WAIT:  time.Minute,
	bpfobj.LbConnStateTCP_LAST_ACK:    30 * time.Second,
	bpfobj.LbConnStateTCP_LISTEN:      2 * time.Minute,
	bpfobj.LbConnStateTCP_SYNACK:      2 * time.Minute,
	bpfobj.LbConnStateCONN_UDP:        5 * time.Minute,

	bpfobj.LbConnStateSCTP_NONE:              2 * time.Second,
	bpfobj.LbConnStateSCTP_INIT1:             4 * time.Second,
	bpfobj.LbConnStateSCTP_INIT:              61 * time.Second,
	bpfobj.LbConnStateSCTP_COOKIE_SENT:       61 * time.Second,
	bpfobj.LbConnStateSCTP_COOKIE_REPLIED:    61 * time.Second,
	bpfobj.LbConnStateSCTP_COOKIE_WAIT:       61 * time.Second,
	bpfobj.LbConnStateSCTP_COOKIE:            61 * time.Second,
	bpfobj.LbConnStateSCTP_COOKIE_ECHOED:     61 * time.Second,
	bpfobj.LbConnStateSCTP_ESTABLISHED:       15 * time.Minute,
	bpfobj.LbConnStateSCTP_SHUTDOWN_SENT:     61 * time.Second,
	bpfobj.LbConnStateSCTP_SHUTDOWN_RECEIVED: 61 * time.Second,
	bpfobj.LbConnStateSCTP_SHUTDOWN_ACK_SENT: 61 * time.Second,
	bpfobj.LbConnStateSCTP_REJECTED:          4 * time.Second,
	bpfobj.LbConnStateSCTP_CLOSED:            61 * time.Second,
}

// syncQueue is how many messages to backups may wait: Linux has memory in pages / 32, which
// is as many on a machine with 1 GiB.
const syncQueue = 8192

// nextHop is FILTER_NEXT_HOP of bpf/types.h.
const nextHop = 2

// tableOf finds a table among maps of a compiled object, or of pins.
func tableOf(maps map[string]*ebpf.Map, table string) *ebpf.Map {
	if m := maps[bpfobj.MapName(table)]; m != nil {
		return m
	}
	return maps[table]
}

// roomOf is how many connections of IPv4, or of IPv6, the table has room for.
func roomOf(maps map[string]*ebpf.Map) ([2]uint32, error) {
	p, err := pagesOf(tableOf(maps, "pages"))
	room := roomFor(p.Bound)
	return [2]uint32{room, room / 2}, err
}

// defaultConfig is the configuration of a new director, with room for so many
// connections of IPv4 and of IPv6.
func defaultConfig(room [2]uint32) bpfobj.LbSettings {
	set := bpfobj.LbSettings{
		ConnReuseMode: 1, AmDroprate: 10, ReplyFilter: nextHop, SynDefence: automatic, HalfOpenLimit: halfOpenLimit(room[0]), Room: room,
		SyncThreshold: 3, SyncPeriod: 50, SyncVersion: 1, SyncPorts: 1, SyncQlenMax: syncQueue,
	}
	for state, d := range defaultTimeouts {
		set.Timeout[state] = uint64(d)
	}
	return set
}

func initConfig(m *ebpf.Map, room [2]uint32) error { return putConfig(m, defaultConfig(room)) }

// configTable is the table of what commands write, of which there is one.
const configTable = "config"

func putConfig(m *ebpf.Map, set bpfobj.LbSettings) error {
	return editConfig(m, func(c *bpfobj.LbConfigTable) { c.Settings = set })
}

// editConfig changes a part of the table. The director's lock is held, or another edit of
// another part would be lost.
func editConfig(m *ebpf.Map, change func(*bpfobj.LbConfigTable)) error {
	c, err := readConfig(m)
	if err != nil {
		return err
	}
	change(&c)
	if err := m.Put(uint32(0), &c); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// configs is what the kernel writes a configuration to: a listing reads it for each page of the
// connection table.
var configs = sync.Pool{New: func() any { return new(bpfobj.LbConfigTable) }}

func readConfig(m *ebpf.Map) (c bpfobj.LbConfigTable, err error) {
	read := configs.Get().(*bpfobj.LbConfigTable)
	defer configs.Put(read)
	if err := m.Lookup(uint32(0), read); err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	return *read, nil
}

func (d *Director) config() (bpfobj.LbSettings, error) {
	c, err := readConfig(d.maps.Config)
	return c.Settings, err
}

// LastHairpinPort is the last of the ports that the director's address may have in hairpins; 0 without
// the setting.
func (d *Director) LastHairpinPort() (uint16, error) {
	set, err := d.config()
	if err != nil || set.Hairpin == 0 {
		return 0, err
	}
	return hairpinPort + hairpinPorts - 1, nil
}

// Timeouts are those that ipvsadm --set sets.
func (d *Director) Timeouts() (model.Timeouts, error) {
	set, err := d.config()
	return model.Timeouts{
		TCP:    time.Duration(set.Timeout[bpfobj.LbConnStateTCP_ESTABLISHED]),
		TCPFin: time.Duration(set.Timeout[bpfobj.LbConnStateTCP_FIN_WAIT]),
		UDP:    time.Duration(set.Timeout[bpfobj.LbConnStateCONN_UDP]),
	}, err
}

// SetTimeouts changes those that are not zero. A connection gets its new
// timeout with its next packet.
func (d *Director) SetTimeouts(t model.Timeouts) error {
	return d.changeConfig(func(set *bpfobj.LbSettings) {
		for state, v := range map[bpfobj.LbConnState]time.Duration{
			bpfobj.LbConnStateTCP_ESTABLISHED: t.TCP,
			bpfobj.LbConnStateTCP_FIN_WAIT:    t.TCPFin,
			bpfobj.LbConnStateCONN_UDP:        t.UDP,
		} {
			if v != 0 {
				set.Timeout[state] = uint64(v)
			}
		}
	})
}

// StateTimeouts returns a function that fills in a connection's whole timeout, by its
// protocol and state, as the director has it now.
func (d *Director) StateTimeouts() (func(*model.Connection), error) {
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	return func(c *model.Connection) {
		if state, ok := stateNumber(c); ok {
			c.Timeout = time.Duration(set.Timeout[state])
		}
	}, nil
}
