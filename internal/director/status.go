// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// Status is what there is to know of a director besides its table.
type Status struct {
	Attachments []Attachment  `json:"attachments"`
	Programs    []ProgramTime `json:"programs"`
	Reasons     []ReasonCount `json:"reasons"`
	Capacity    Sizes         `json:"capacity"`
	Services    int           `json:"services"`
	Tracers     int           `json:"tracers"` // at work, or killed a moment ago
}

// ProgramTime is what a program cost so far. The kernel measures it while BPF
// statistics are on (sysctl kernel.bpf_stats_enabled).
type ProgramTime struct {
	Name     string `json:"name"`
	RunTime  uint64 `json:"run_time_ns"`
	RunCount uint64 `json:"run_count"`
}

// ReasonCount is how many packets were passed by, refused or dropped for one
// reason.
type ReasonCount struct {
	Verdict string `json:"verdict"` // pass, refused or drop
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// Status reads attachments, programs and the packets not forwarded.
func (d *Director) Status() (Status, error) {
	st := Status{Capacity: Sizes{
		Services:    d.maps.Services.MaxEntries(),
		Servers:     d.maps.Servers.MaxEntries(),
		Connections: d.maps.Conns4.MaxEntries(),
	}}
	t, err := d.load()
	if err != nil {
		return st, err
	}
	st.Services = len(t.services)
	if st.Attachments, err = d.Attachments(); err != nil {
		return st, err
	}
	if st.Programs, err = d.programTimes(); err != nil {
		return st, err
	}
	if st.Tracers, err = d.tracing(); err != nil {
		return st, err
	}
	st.Reasons, err = d.reasons()
	return st, err
}

func (d *Director) programTimes() ([]ProgramTime, error) {
	var all []ProgramTime
	progs := reflect.ValueOf(&d.progs).Elem()
	for i := range progs.NumField() {
		p := progs.Field(i).Interface().(*ebpf.Program)
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
