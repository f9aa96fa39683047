// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"github.com/cilium/ebpf/asm"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// injections put faults into the tables while packets come, at random times. Edits
// pause from the injection to the repair: an edit would repair some of the faults,
// and the auditor does not judge what is being edited.
type injections struct {
	*soak
	*rand.Rand
	round  int
	timer  *time.Timer
	strays int // slots that lead nowhere and were not found where a split took them to, or dropped them
}

func (s *soak) injections() *injections {
	i := &injections{soak: s, Rand: rand.New(rand.NewPCG(s.seed, 1<<32)), timer: time.NewTimer(time.Hour)}
	if *soakFaults {
		i.timer.Reset(5 * time.Second)
	}
	return i
}

// next tells when the next faults are due.
func (i *injections) next() <-chan time.Time { return i.timer.C }

// splitTries is how many more audits may find a slot that leads nowhere: a split may take it along to
// another bucket between the passes, or drop it.
const splitTries = 4

// episode injects some kinds of faults, and expects each found, nothing else found,
// and all repaired.
func (i *injections) episode() {
	i.Helper()
	i.editing.Lock()
	defer i.editing.Unlock()
	i.round++
	defer i.timer.Reset(time.Duration(1+i.IntN(8)) * time.Second)
	i.steady.Store(true) // no flood lets the table grow
	defer i.steady.Store(false)
	x := newInjector(i.rig)
	x.unknown, x.round = soakSizes().Servers-1, i.round
	i.quiet(x)
	before, err := i.newBucketReader()
	i.must(err)
	which := i.Perm(len(faults))[:1+i.IntN(len(faults))]
	for _, n := range which {
		faults[n](x)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report, err := i.Audit(ctx, AuditOptions{Interval: 300 * time.Millisecond, Repair: true})
	i.must(err)
	for _, undo := range x.undo {
		undo()
	}
	got, wanted := map[AuditKind]int{}, 0
	note := func(findings []AuditFinding) {
		for _, f := range findings {
			for _, kind := range AuditKinds() {
				if kind.String() == f.Kind {
					got[kind]++
				}
			}
		}
	}
	note(report.Findings)
	var errs []error
	for _, f := range report.Remaining {
		if f.Kind != AuditCountsMoving.String() {
			errs = append(errs, fmt.Errorf("after the repair: %+v", f))
		}
	}
	for try := 0; ; try++ {
		report, err = i.Audit(ctx, AuditOptions{Interval: 300 * time.Millisecond, Repair: true})
		i.must(err)
		if note(report.Findings); report.Clean() && len(report.Findings) == 0 || try == splitTries {
			break
		}
	}
	if !report.Clean() {
		errs = append(errs, fmt.Errorf("a moment later: %w", findingsError(report.Findings)))
	}
	after, err := i.newBucketReader()
	i.must(err)
	for _, kind := range AuditKinds() {
		wanted += x.want[kind]
		if more := got[kind] - x.want[kind]; kind == AuditSlotStray && more <= i.strays && (more > 0 || before.geometry != after.geometry) {
			i.strays -= more
		} else if more != 0 {
			errs = append(errs, fmt.Errorf("%s: found %d, injected %d", kind, got[kind], x.want[kind]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		i.cancel(fmt.Errorf("injection %d, of faults %v: %w\nall: %w", i.round, which, err, findingsError(report.Findings)))
		return
	}
	i.faults.Add(uint64(wanted))
	i.audits.Add(1)
	i.judged.Add(1)
}

// quiet makes the services that faults are put into, which traffic leaves alone but
// for one, and connections to them.
func (i *injections) quiet(x *injector) {
	i.Helper()
	set, err := i.config()
	i.must(err)
	// Nothing but the sweep may end these connections, and not soon.
	i.must(i.Set(Setting{Name: "drop_entry"}, Setting{Name: "drop_packet"}, Setting{Name: "secure_tcp"}, Setting{Name: "syn_defence"},
		Setting{Name: "expire_nodest_conn"}, Setting{Name: "drain_timeout"}))
	// Others keep silent for a while, so that these have blocks for themselves.
	i.sending.Lock()
	defer i.sending.Unlock()
	i.endEarlier(x)
	for _, state := range []bpfobj.LbConnState{bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateTCP_ESTABLISHED} {
		was := time.Duration(set.Timeout[state])
		i.rig.timeouts(time.Minute, state)
		defer func() { i.rig.timeouts(was, state) }()
	}
	i.must(i.Batch(func() error {
		gone := func(vip string) error {
			err := i.DeleteService(model.AddrKey(model.TCP, netip.MustParseAddrPort(vip)))
			if errors.Is(err, model.ErrNoService) {
				err = nil
			}
			return err
		}
		if err := gone(nthVIP(0)); err != nil {
			return err
		}
		i.addService(tcpService(nthVIP(0), "rr"), 1, 2, 3)
		for _, scheduler := range append(auditServices, "") {
			if err := gone(quietVIP(scheduler)); err != nil {
				return err
			}
			if scheduler == "" {
				s := persistent(tcpService(quietVIP(""), "rr"))
				s.Timeout = 5 * time.Second
				i.addService(s, 1, 1)
				continue
			}
			i.addService(tcpService(quietVIP(scheduler), scheduler), 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4)
		}
		return nil
	}))
	for n := range 2 * blockEntries * runtime.NumCPU() {
		client := fmt.Sprintf("10.10.%d.%d:%d", 40+n%24, 1+i.round%250, 1024+n/24+64*(i.round/250))
		i.establish(client, quietVIP("wlc"))
		x.flows = append(x.flows, fromFlow4(x.flow4(client, quietVIP("wlc"))))
	}
}

// endEarlier has the connections of earlier episodes end before others are judged: a server whose
// connections change between the passes is not judged exactly.
func (i *injections) endEarlier(x *injector) {
	i.Helper()
	vip := fromFlow4(x.flow4(client1, quietVIP("wlc"))).Dst
	earlier := func() (all []entry) {
		i.must(i.eachEntry(context.Background(), model.IPv4, func(e *entry) error {
			if e.Flow.Dst == vip {
				all = append(all, *e)
			}
			return nil
		}))
		return all
	}
	for _, e := range earlier() {
		x.poke(entrySpot(e.at, fieldExpires), asm.DWord, 2*deadTime|incarnation(&e.LbConn))
	}
	i.atLast(time.Minute, "connections of earlier episodes end", func() bool { return len(earlier()) == 0 })
}
