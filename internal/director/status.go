// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"reflect"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// Status is the state of a director without the services of its table.
type Status struct {
	Attachments []Attachment  `json:"attachments"`
	Gone        []string      `json:"gone,omitempty"` // sides whose device is gone, see Director.Gone
	Programs    []ProgramTime `json:"programs"`
	Reasons     []ReasonCount `json:"reasons"`
	Capacity    Sizes         `json:"capacity"`
	Services    int           `json:"services"`
	Generation  uint64        `json:"generation"` // of the table, see Director.Generation
	Tracers     int           `json:"tracers"`    // at work, or killed a moment ago
	Followers   int           `json:"followers"`  // of connections, likewise
	// Connections are those of servers, templates left out.
	Connections uint64   `json:"connections"`
	Tables      Tables   `json:"connection_tables"`
	Full        Full     `json:"full"`
	Unproven    Unproven `json:"unproven"`
	Attack      Attack   `json:"attack"`
}

// Tables is the memory of the connection table.
type Tables struct {
	Bytes  uint64 `json:"bytes"`  // of all blocks
	Blocks uint32 `json:"blocks"` // that there are, of 4032 bytes
	Spare  uint32 `json:"spare"`  // of them, in use or used before: the kernel allocated each, as no process had added pages
	Bound  uint32 `json:"bound"`  // blocks that may be in use
	Used   uint32 `json:"used"`   // room that entries take, in connections of IPv4: as of the last sweep

	Buckets      uint32  `json:"buckets"`               // a connection is found by one: as many grow one by one as there are connections
	SweepPass    Seconds `json:"sweep_pass_seconds"`    // the last time that the sweep came by all entries took
	SweepLongest Seconds `json:"sweep_longest_seconds"` // its longest callback so far
}

// Full is when the table had no room for a connection, or the kernel no memory.
type Full struct {
	Now     bool      `json:"now"`
	Since   time.Time `json:"since,omitzero"` // the first packet of the last time
	Last    time.Time `json:"last,omitzero"`
	Packets uint64    `json:"packets"` // dropped for it, ever
}

// ProgramTime is what a program cost so far. The kernel measures it while BPF
// statistics are on (sysctl kernel.bpf_stats_enabled).
type ProgramTime struct {
	Name     string `json:"name"`
	RunTime  uint64 `json:"run_time_ns"`
	RunCount uint64 `json:"run_count"`
}

// ReasonCount is how many packets were passed to the stack, refused or dropped for one
// reason.
type ReasonCount struct {
	Verdict string `json:"verdict"` // pass, refused or drop
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// Status reads attachments, programs and the packets not forwarded.
func (d *Director) Status() (Status, error) {
	capacity, err := d.capacity()
	if err != nil {
		return Status{}, err
	}
	st := Status{Capacity: capacity}
	servers := 0
	err = d.read(func(t *table) (err error) {
		st.Services, servers = len(t.services), len(t.servers)
		st.Generation, err = d.Generation()
		return err
	})
	if err != nil {
		return st, err
	}
	if st.Attachments, err = d.Attachments(); err != nil {
		return st, err
	}
	if st.Gone, err = d.Gone(st.Attachments); err != nil {
		return st, err
	}
	if st.Programs, err = d.programTimes(); err != nil {
		return st, err
	}
	if st.Tracers, err = d.tracing(); err != nil {
		return st, err
	}
	if st.Followers, err = d.following(); err != nil {
		return st, err
	}
	if st.Reasons, err = d.reasons(); err != nil {
		return st, err
	}
	if st.Connections, err = d.connections(servers); err != nil {
		return st, err
	}
	if st.Tables, err = d.tables(); err != nil {
		return st, err
	}
	if st.Full, err = d.full(st.Reasons); err != nil {
		return st, err
	}
	if st.Unproven, err = d.unprovenEntries(servers); err != nil {
		return st, err
	}
	st.Attack, err = d.Attack()
	return st, err
}

// capacity is what the tables have room for.
func (d *Director) capacity() (Sizes, error) {
	p, err := pagesOf(d.maps.Pages)
	return Sizes{
		Services:    d.maps.Services.MaxEntries(),
		Servers:     d.mostServers(),
		Connections: roomFor(p.Bound),
	}, err
}

// mostServers is how many servers there may be: each may own the replies of its address and port.
func (d *Director) mostServers() uint32 { return d.maps.ReplyOwners.MaxEntries() }

// connections adds up those of the first n servers.
func (d *Director) connections(n int) (sum uint64, err error) {
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(n))
	if err != nil {
		return 0, fmt.Errorf("read the servers' connections: %w", err)
	}
	for _, l := range loads {
		sum += uint64(l.Active) + uint64(l.Inactive)
	}
	return sum, nil
}

// tables describes the memory of the connection table.
func (d *Director) tables() (t Tables, err error) {
	p, b, err := d.blocks()
	if err != nil {
		return t, err
	}
	t = Tables{Blocks: p.Made + b.Spare, Spare: b.Spare, Bound: p.Bound, Used: b.Used}
	t.Bytes = uint64(t.Blocks) * blockBytes
	var shape bpfobj.LbShapeTable
	if err := d.maps.Shape.Lookup(uint32(0), &shape); err != nil {
		return t, fmt.Errorf("read the connection table: %w", err)
	}
	c, err := d.tableClock()
	t.Buckets, t.SweepPass, t.SweepLongest = uint32(shape.Geometry), Seconds(c.Took), Seconds(c.Longest)
	return t, err
}

// defenceLinger is DEFENCE_LINGER of bpf/defence.h.
const defenceLinger = 2 * time.Second

// full reads when the table was.
func (d *Director) full(reasons []ReasonCount) (f Full, err error) {
	state, err := d.state()
	memory := state.Defence
	if err != nil || memory.Until == 0 {
		return f, err
	}
	last := memory.Until - uint64(defenceLinger)
	if f.Since, err = wallTime(memory.FullSince); err != nil {
		return f, err
	}
	if f.Last, err = wallTime(last); err != nil {
		return f, err
	}
	f.Now = time.Since(f.Last) < defenceLinger
	_, reason := reasonWords(bpfobj.LbReasonREASON_DROP_TABLE_FULL)
	for _, r := range reasons {
		if r.Reason == reason {
			f.Packets += r.Packets
		}
	}
	return f, nil
}

func (d *Director) programTimes() ([]ProgramTime, error) {
	var all []ProgramTime
	progs := reflect.ValueOf(&d.progs).Elem()
	for i := range progs.NumField() {
		p := progs.Field(i).Interface().(*ebpf.Program)
		if p == nil {
			continue // not wanted yet
		}
		stats, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("program statistics: %w", err)
		}
		all = append(all, ProgramTime{
			Name:     progs.Type().Field(i).Tag.Get("ebpf"),
			RunTime:  uint64(stats.Runtime.Nanoseconds()),
			RunCount: stats.RunCount,
		})
	}
	return all, nil
}

func (d *Director) reasons() ([]ReasonCount, error) {
	var all []ReasonCount
	for r := range bpfobj.LbReasonREASON_COUNT {
		var perCPU []uint64
		if err := d.maps.Reasons.Lookup(uint32(r), &perCPU); err != nil {
			return nil, fmt.Errorf("read reasons: %w", err)
		}
		var count ReasonCount
		count.Verdict, count.Reason = reasonWords(r)
		for _, n := range perCPU {
			count.Packets += n
		}
		all = append(all, count)
	}
	return all, nil
}
