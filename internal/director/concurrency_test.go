// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// together sends packets from several threads at once, n from each.
func (r *rig) together(threads, n int, packet func(thread, i int) testenv.Packet) {
	r.Helper()
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	errs := make([]error, threads)
	start := make(chan struct{})
	var all sync.WaitGroup
	for thread := range threads {
		frames := make([][]byte, n)
		for i := range frames {
			frames[i] = packet(thread, i).Frame()
		}
		all.Go(func() {
			errs[thread] = r.ns.Do(func() error {
				<-start
				for _, frame := range frames {
					got, err := run(r.progs.LbClient, context, frame, 0)
					if err != nil || got.verdict != redirect {
						return errors.Join(err, fmt.Errorf("thread %d: %s", thread, got.verdict))
					}
				}
				return nil
			})
		})
	}
	close(start)
	all.Wait()
	r.must(errs...)
}

// Packets on several CPUs at once: round robin gives no turn twice, and
// no count is lost.
func TestConcurrentConnections(t *testing.T) {
	const threads, each, servers = 4, 2400, 3
	r := newRig(t, small)
	for round, scheduler := range []string{"rr", "wrr"} {
		s := tcpService(nthVIP(round), scheduler)
		r.addService(s, 1, 1, 1)
		r.together(threads, each, func(thread, i int) testenv.Packet {
			return testenv.TCP(nthClient((round*threads+thread)*each+i), nthVIP(round), "S")
		})
		st := r.status(s.Key)
		total := model.Stats{Conns: threads * each, InPkts: threads * each, InBytes: 44 * threads * each}
		if st.Stats != total {
			t.Errorf("%s: service %+v, want %+v", scheduler, st.Stats, total)
		}
		for _, server := range st.Servers {
			if server.Stats.Conns != threads*each/servers || server.Active != threads*each/servers || server.Inactive != 0 {
				t.Errorf("%s: server %s has %d connections, %d active, %d inactive; want %d, all active",
					scheduler, server.Addr, server.Stats.Conns, server.Active, server.Inactive, threads*each/servers)
			}
		}
	}
	// The second service has the same servers.
	if got := r.leftovers(); got != (leftovers{conns: 2 * threads * each, replies: threads * each}) || r.linesInUse() != got.conns+got.replies {
		t.Errorf("%+v in %d lines, want %d, half of them with an entry for answers", got, r.linesInUse(), 2*threads*each)
	}
	r.wantClean("all are open")
}

// The same SYN on several CPUs at once makes one connection.
func TestConcurrentDuplicates(t *testing.T) {
	const threads, each = 4, 500
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1, 1)
	r.together(threads, each, func(_, i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	st := r.status(s.Key)
	var active, inactive uint32
	for _, server := range st.Servers {
		active += server.Active
		inactive += server.Inactive
	}
	if active != each || inactive != 0 || st.Stats.Conns != each || st.Stats.InPkts != threads*each {
		t.Errorf("%d active, %d inactive, %+v; want %d connections of %d packets", active, inactive, st.Stats, each, threads*each)
	}
	if got := r.leftovers(); got != (leftovers{conns: each}) || r.linesInUse() != each {
		t.Errorf("%+v in %d lines, want %d", got, r.linesInUse(), each)
	}
	r.wantClean("all are open")
}

// Packets of established connections find these while other CPUs' make the table grow, and while
// it shrinks again: also if a process adds memory, and takes it away.
func TestConcurrentGrowth(t *testing.T) {
	for _, provided := range []bool{false, true} {
		t.Run(fmt.Sprintf("provided %t", provided), func(t *testing.T) { concurrentGrowth(t, provided) })
	}
}

func concurrentGrowth(t *testing.T, provided bool) {
	const known, more, rounds = 200, 20000, 2
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1, 1, 1)
	r.timeouts(time.Hour, bpfobj.LbConnStateTCP_ESTABLISHED)
	var frames [known][]byte
	var servers [known]netip.AddrPort
	for i := range known {
		servers[i] = r.establish(nthClient(i), vip)
		frames[i] = testenv.TCP(nthClient(i), vip, "A").Frame()
	}
	r.timeouts(5*time.Second, bpfobj.LbConnStateTCP_SYN_RECV) // all are there at once, also on a busy machine

	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for provided {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, provided := r.provide()
			_, trimmed := r.trim()
			if err := errors.Join(provided, trimmed); err != nil {
				t.Error(err)
				return
			}
		}
	})
	sent := 0
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	others.Go(func() {
		err := r.ns.Do(func() error {
			for ; ; sent++ {
				select {
				case <-done:
					return nil
				default:
				}
				i := sent % known
				got, err := run(r.progs.LbClient, context, frames[i], 0)
				if err != nil {
					return err
				}
				if to, err := got.server(); err != nil || to != servers[i] {
					return fmt.Errorf("packet %d, of connection %d to %s, goes to %s, %w", sent, i, servers[i], to, err)
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	inUse := func() uint32 {
		_, b, err := r.blocks()
		r.must(err)
		return b.Taken + b.Spare
	}
	// buckets_wanted of bpf/table/reshape.h, with MERGE_SLACK.
	wanted := func() uint32 {
		_, b, err := r.blocks()
		r.must(err)
		lines := (b.Family[0] + b.Family[1]) * blockEntries
		return max(lines-min(b.Free, lines), lines/8)/5 + 64
	}
	grow := func(round int) {
		before := r.buckets()
		reasons := r.reasonsOf(func() {
			r.flood(more, func(i int) testenv.Packet { return testenv.TCP(nthClient(1000+i), vip, "S") })
		})
		if len(reasons) != 0 {
			t.Errorf("round %d: not forwarded: %v", round, reasons)
		}
		grown := r.buckets()
		if n := inUse(); n <= 2*pagesAhead*pageBlocks {
			t.Errorf("round %d: %d blocks for %d connections", round, n, more)
		}
		// Without a process all blocks stay, and an eighth of the buckets for them.
		changes := provided || round == 0
		if changes && grown < 4*before {
			t.Errorf("round %d: %d buckets became %d by %d connections", round, before, grown, more)
		}
		r.atLast(time.Minute, "the others end", func() bool { return r.conns() == known })
		r.atLast(2*time.Minute, "there are fewer buckets", func() bool {
			return !changes || r.buckets() < grown/4
		})
		if provided {
			r.atLast(2*time.Minute, "blocks are given back", func() bool { return inUse() <= pagesAhead*pageBlocks })
			r.atLast(2*time.Minute, "there are as many buckets as are wanted", func() bool { return r.buckets() <= wanted() })
		}
	}
	finish := sync.OnceFunc(func() { close(done); others.Wait() })
	t.Cleanup(finish) // also if it fails
	for round := range rounds {
		grow(round)
	}
	finish()
	t.Logf("%d packets", sent)
	if n := r.linesInUse(); n != known {
		t.Errorf("%d lines are in use by %d entries", n, known)
	}
	r.wantClean("in the end")
}

// Connections come, change and end while the table is edited: the counts
// return to zero.
func TestEditsUnderTraffic(t *testing.T) {
	const threads, each = 3, 3000
	r := newRig(t, Sizes{Services: 16, Servers: 256, Connections: 1 << 16})
	s := tcpService(vip, "wlc")
	r.addService(s, 1, 1, 1)
	r.timeouts(time.Hour, everyState()...) // none ends before it is counted
	done := make(chan struct{})
	var edits sync.WaitGroup
	var failed error
	edits.Go(func() {
		for i := 0; failed == nil; i++ {
			select {
			case <-done:
				return
			default:
			}
			extra := realServer(3+i%8, 2)
			failed = errors.Join(r.AddServer(s.Key, extra), r.EditServer(s.Key, realServer(0, int32(1+i%3))),
				r.DeleteServer(s.Key, extra.AddrPort()))
		}
	})
	steps := []string{"S", "A", "R"}
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	var traffic sync.WaitGroup
	errs := make([]error, threads)
	for thread := range threads {
		traffic.Go(func() {
			errs[thread] = r.ns.Do(func() error {
				for i := range each {
					for _, flags := range steps {
						if _, err := run(r.progs.LbClient, context, testenv.TCP(nthClient(thread*each+i), vip, flags).Frame(), 0); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
	traffic.Wait()
	close(done)
	edits.Wait()
	r.must(append(errs, failed)...)
	var active, inactive uint32
	statuses, err := r.serverStatuses(r.table)
	r.must(err)
	for _, st := range statuses {
		active += st.Active
		inactive += st.Inactive
	}
	// A SYN may be lost whose server is deleted between choice and connection.
	if n := r.conns(); uint32(n) != active+inactive || n > threads*each || n < threads*each*99/100 {
		t.Errorf("%d connections, %d active and %d inactive at the servers; want %d", n, active, inactive, threads*each)
	}
}
