// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The number of buckets follows that of entries, and blocks are given back. An operation on CPU A
// is stopped meanwhile: it finds its flow's bucket, and room for an entry, where they are then.

// opensMany opens connections on CPU B.
func (x *interleaved) opensMany(n int) {
	x.Helper()
	x.onCPU(cpuB, func() error {
		for i := range n {
			if got, err := x.clientRun(testenv.TCP(nthClient(1000+i), vip, "S")); err != nil || got.verdict != redirect {
				return fmt.Errorf("connection %d: %s, %w", i, got.verdict, err)
			}
		}
		return nil
	})
}

const reshapedBy = 3000 // connections

// reshapes are ways to change the number of buckets. What is to be done before an operation is
// stopped, and what while it is.
var reshapes = map[string]struct{ before, meanwhile func(x *interleaved) }{
	"splits": {
		func(*interleaved) {},
		func(x *interleaved) {
			was := x.buckets()
			x.opensMany(reshapedBy)
			if n := x.buckets(); n < 4*was {
				x.Fatalf("%d buckets became %d by %d connections", was, n, reshapedBy)
			}
		},
	},
	"merges": {
		func(x *interleaved) {
			x.timeouts(5*time.Second, bpfobj.LbConnStateTCP_SYN_RECV)
			x.opensMany(reshapedBy)
			x.timeouts(time.Minute, bpfobj.LbConnStateTCP_SYN_RECV)
		},
		func(x *interleaved) {
			was := x.buckets()
			x.advance(6 * time.Second)
			for range 2 * was / 64 { // at once, at most
				x.sweepTable()
			}
			if n := x.buckets(); n > was/2 {
				x.Fatalf("%d buckets became %d when %d connections ended", was, n, reshapedBy)
			}
		},
	},
}

func TestRaceReshaped(t *testing.T) {
	for way, reshape := range reshapes {
		for _, c := range []struct {
			name   string
			opened string // what made the connection that there is
			at     lbtest.LbHookPoint
			packet testenv.Packet
			state  string // in the end
		}{
			{"opens", "", lbtest.LbHookPointPOINT_CONN_INSERT, testenv.TCP(client1, vip, "S"), "SYN_RECV"},
			{"opens the next one", handshake + "c:R", lbtest.LbHookPointPOINT_CONN_INSERT, testenv.TCP(client1, vip, "S"), "SYN_RECV"},
			{"ends", handshake + "c:R", lbtest.LbHookPointPOINT_CONN_KILL, testenv.TCP(client1, vip, "S"), "SYN_RECV"},
			{"reads", handshake, lbtest.LbHookPointPOINT_CONN_FOUND, testenv.TCP(client1, vip, "S"), "ESTABLISHED"},
			{"prolongs", handshake, lbtest.LbHookPointPOINT_CONN_COUNT, testenv.TCP(client1, vip, "A"), "ESTABLISHED"},
			{"moves", handshake, lbtest.LbHookPointPOINT_CONN_MOVE, testenv.TCP(client1, vip, "FA").Options(1), "CLOSE_WAIT"},
			{"moves on the fast path", handshake, lbtest.LbHookPointPOINT_CONN_FAST, testenv.TCP(client1, vip, "FA"), "CLOSE_WAIT"},
		} {
			t.Run(way+"/"+c.name, func(t *testing.T) {
				x := newInterleaved(t)
				x.addService(tcpService(vip, "rr"), 1)
				reshape.before(x)
				x.walk(client1, vip, server0, c.opened)
				x.advance(time.Second)
				a, got := x.stopPacket(c.at, c.packet)
				reshape.meanwhile(x)
				a.finish()
				if got.verdict != redirect {
					t.Errorf("the packet: %s", got.verdict)
				}
				if state := x.connection(client1).State; state != c.state {
					t.Errorf("its connection is %s, want %s", state, c.state)
				}
				x.conn(c.packet) // is found as packets find it
				x.wantAudited("in the end")
				x.wantSound("in the end")
				x.wantOver()
			})
		}
	}
}

// The sweep has come to an entry, whose bucket is split before it is ended.
func TestRaceSweepReshaped(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	a := x.stop(lbtest.LbHookPointPOINT_CONN_DUE, x.sweepRun)
	reshapes["splits"].meanwhile(x)
	a.finish()
	if n := x.conns(); n != reshapedBy {
		t.Errorf("%d connections, want the %d that were opened meanwhile", n, reshapedBy)
	}
	x.wantAudited("in the end")
	x.wantOver()
}

// trimTable gives the blocks back that are not used, as a process does that has waited for packets.
func (x *interleaved) trimTable() {
	x.Helper()
	x.onCPU(cpuB, func() error {
		_, err := x.runTrim()
		return err
	})
}

// A CPU's block is given back and becomes one of the other family: the CPU takes another one.
func TestBlockOfAnotherFamily(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			x := newInterleaved(t)
			opens := func(cpu int, f family, port int) {
				t.Helper()
				if got := x.fromClientOn(cpu, testenv.UDP(at(f.client, port), at(f.vip(1), 80), "x")); got.verdict != redirect {
					t.Errorf("a connection of %s on CPU %d: %s", f.name, cpu, got.verdict)
				}
			}
			for _, f := range families {
				x.serve(service(model.UDP, at(f.vip(1), 80), "rr"), f.real(0, 8080))
			}
			opens(cpuA, f, 1000)
			block := x.only().Index / indexLines
			x.pass(6 * time.Minute)
			x.trimTable()
			opens(cpuB, f.other(), 1001)
			if at := x.only().Index / indexLines; at != block {
				t.Fatalf("the other family has block %d, not %d, which CPU A had", at, block)
			}
			for port := range 100 {
				opens(cpuA, f, 1000+port)
			}
			x.wantAudited("in the end")
			x.wantSound("in the end")
			x.wantOver()
		})
	}
}

// Two CPUs use one block, which happens in a full table: neither takes the other's lines, and
// all lines are used.
func TestBlockOfTwo(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	x.addService(tcpService(vip, "rr"), 1)
	n := 0
	for ; n < 1000; n++ {
		if got := x.fromClientOn(n%2, testenv.TCP(nthClient(n), vip, "S")); got.verdict != redirect {
			break
		}
	}
	if free := x.freeLines(model.IPv4); free != 0 {
		t.Errorf("connection %d is refused, and %d lines are free", n, free)
	}
	if have := x.conns(); have != n || n < int(crowdedSizes.Connections) {
		t.Errorf("%d entries, want %d, and %d at least", have, n, crowdedSizes.Connections)
	}
	x.wantAudited("full")
	// Each line that is given back is used again, whichever CPU asks.
	for i := range 4 {
		x.fromServerOn(cpuB, testenv.TCP(server0, nthClient(i), "RA"))
	}
	x.pass(11 * time.Second) // CLOSE lasts 10 s
	for i := range 4 {
		if got := x.fromClientOn(i%2, testenv.TCP(nthClient(i), vip, "S")); got.verdict != redirect {
			t.Errorf("a connection for which there is room: %s, %d lines are free", got.verdict, x.freeLines(model.IPv4))
		}
	}
	x.wantAudited("full again")
	x.wantSound("full again")
	x.wantOver()
}

// CPUs that find room in blocks that were used before have a block each, though no new one may be taken.
func TestBlocksOfTwoAtTheBound(t *testing.T) {
	x := newInterleavedSized(t, Sizes{Services: 16, Servers: 16, Connections: 400})
	x.addService(tcpService(vip, "rr"), 1)
	n := 0
	for ; x.fromClientOn(cpuB, testenv.TCP(nthClient(n), vip, "S")).verdict == redirect; n++ {
	}
	for i := 0; i < n; i += 2 {
		x.fromServerOn(cpuB, testenv.TCP(server0, nthClient(i), "RA"))
	}
	x.pass(11 * time.Second) // CLOSE lasts 10 s
	blocks := map[int]map[uint32]bool{cpuA: {}, cpuB: {}}
	for i := range n / 3 {
		p := testenv.TCP(nthClient(n+i), vip, "S")
		if got := x.fromClientOn(i%2, p); got.verdict != redirect {
			t.Fatalf("connection %d: %s, %d lines are free", i, got.verdict, x.freeLines(model.IPv4))
		}
		blocks[i%2][x.conn(p).Index/indexLines] = true
	}
	for b := range blocks[cpuA] {
		if blocks[cpuB][b] {
			t.Errorf("both CPUs took entries of block %d: A of %v, B of %v", b, blocks[cpuA], blocks[cpuB])
		}
	}
	x.wantAudited("half full")
	x.wantOver()
}

// A full table has room where a block is noted for it. The sweep notes those again of which that was
// lost, and a block without entries for both families.
func TestRoomIsNotedAgain(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	six := families[1]
	x.addService(tcpService(vip, "rr"), 1)
	x.serve(service(model.TCP, at(six.vip(1), 80), "rr"), six.real(0, 8080))
	n := 0
	for ; x.fromClientOn(cpuB, testenv.TCP(nthClient(n), vip, "S")).verdict == redirect; n++ {
	}
	lost := func(open testenv.Packet, when string) {
		t.Helper()
		x.must(x.maps.Room.Put(uint32(0), make([]byte, x.maps.Room.ValueSize())))
		if got := x.fromClientOn(cpuA, open); got.verdict == redirect {
			t.Errorf("%s: a connection opens where no block is noted: the test shows nothing", when)
		}
		x.pass(time.Second)
		if got := x.fromClientOn(cpuA, open); got.verdict != redirect {
			t.Errorf("%s: %s where the sweep has come by", when, got.verdict)
		}
	}
	x.fromServerOn(cpuB, testenv.TCP(server0, nthClient(0), "RA"))
	x.pass(11 * time.Second) // CLOSE lasts 10 s
	lost(testenv.TCP(nthClient(n), vip, "S"), "one line")
	for i := range n {
		x.fromServerOn(cpuB, testenv.TCP(server0, nthClient(1+i), "RA"))
	}
	x.pass(11 * time.Second)
	lost(testenv.TCP(at(six.client, 1), at(six.vip(1), 80), "S"), "the other family")
	x.wantAudited("in the end")
	x.wantSound("in the end")
	x.wantOver()
}

// Blocks beside pages, which the kernel allocates, do as the others: for entries, and for buckets.
func TestSpareBlocks(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			x := newInterleaved(t)
			x.withoutPages()
			vip := at(f.vip(1), 80)
			x.serve(service(model.TCP, vip, "rr"), f.real(0, 8080))
			const n = 1000
			client := func(i int) string {
				if f.number == model.IPv6 {
					return fmt.Sprintf("[fd00:10::%x]:%d", 0x1000+i, 2000)
				}
				return nthClient(i)
			}
			packets := func(what, flags string) {
				t.Helper()
				x.onCPU(cpuB, func() error {
					for i := range n {
						if got, err := x.clientRun(testenv.TCP(client(i), vip, flags)); err != nil || got.verdict != redirect {
							return fmt.Errorf("%s of connection %d: %s, %w", what, i, got.verdict, err)
						}
					}
					return nil
				})
			}
			packets("the SYN", "S")
			if _, b, err := x.blocks(); err != nil || b.Spare < n/blockEntries {
				t.Fatalf("%d blocks are beside pages, %v: want %d at least", b.Spare, err, n/blockEntries)
			}
			packets("the ACK", "A")
			if got := x.conns(); got != n {
				t.Errorf("%d entries, want %d", got, n)
			}
			x.wantAudited("open")
			x.wantSound("open")
			x.wantOver()
			x.wantAudited("over")
		})
	}
}

// withoutPages has the table get no further pages: the next block is one that the kernel allocates.
func (r *rig) withoutPages() {
	r.Helper()
	p, b, err := r.blocks()
	r.must(err)
	p.Made = b.Taken
	r.withPages(p)
}

// withPages sets what a process says of blocks, for the time of the test.
func (r *rig) withPages(p bpfobj.LbPageTable) {
	r.Helper()
	was, err := pagesOf(r.maps.Pages)
	r.must(err)
	r.must(r.maps.Pages.Put(uint32(0), p))
	pages := r.maps.Pages
	r.Cleanup(func() { r.must(pages.Put(uint32(0), was)) }) // the data plane may be used again
}

// Entries that a bucket has no slot for are chained: they are found, end, and get slots that become
// free, and buckets of their own when there are more. What a chain has no room for is refused.
func TestChains(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	const n = 4000
	// each sends packets of connections, and reports those of which the verdict is not as wanted.
	each := func(what, flags string, of func(i int) bool, want func(i int, v verdict) bool) {
		t.Helper()
		wrong := 0
		x.onCPU(cpuB, func() error {
			for i := range n {
				if !of(i) {
					continue
				}
				got, err := x.clientRun(testenv.TCP(nthClient(i), vip, flags))
				if err != nil {
					return err
				}
				if !want(i, got.verdict) {
					wrong++
				}
			}
			return nil
		})
		if wrong > 0 {
			t.Errorf("%s: %d verdicts are wrong", what, wrong)
		}
	}
	all := func(int) bool { return true }
	third := func(i int) bool { return i%3 == 0 }
	sent := func(_ int, v verdict) bool { return v == redirect }

	x.reshaping(true) // no CPU changes the number of buckets
	first := x.buckets()
	open, opened := make([]bool, n), 0
	reasons := x.reasonsOf(func() {
		each("the SYN", "S", all, func(i int, v verdict) bool {
			if open[i] = v == redirect; open[i] {
				opened++
			}
			return true
		})
	})
	most := int(first) * (bucketSlots + chainLongest + 1)
	if opened > most || opened == n || reasons["drop table full"] != uint64(n-opened) || len(reasons) != 1 {
		t.Errorf("%d of %d connections were opened in %d buckets, which have room for %d: %v", opened, n, first, most, reasons)
	}
	if got := x.conns(); got != opened {
		t.Errorf("%d entries, want %d", got, opened)
	}
	if lines := x.linesInUse(); lines != opened {
		t.Errorf("%d lines are in use by %d entries", lines, opened)
	}
	x.wantAudited("chained")
	x.wantSound("chained")
	each("the ACK", "A", all, func(i int, v verdict) bool { return (v == redirect) == open[i] })

	// A third ends, of slots and of chains.
	each("the reset", "R", third, func(i int, v verdict) bool { return (v == redirect) == open[i] })
	x.pass(11 * time.Second) // CLOSE lasts 10 s
	for i := range n {
		if third(i) && open[i] {
			open[i] = false
			opened--
		}
	}
	if got := x.conns(); got != opened {
		t.Errorf("%d entries after a third have ended, want %d", got, opened)
	}
	x.wantAudited("a third have ended")
	each("the ACK, when a third have ended", "A", all, func(i int, v verdict) bool { return (v == redirect) == open[i] })

	x.reshaping(false)
	each("the SYN again", "S", all, sent)
	if b := x.buckets(); b < 4*first {
		t.Errorf("%d buckets for %d entries", b, n)
	}
	if got := x.conns(); got != n {
		t.Errorf("%d entries, want %d", got, n)
	}
	x.wantAudited("split")
	x.wantSound("split")
	each("the ACK again", "A", all, sent)
	x.wantOver()
}

// reshaping marks the number of buckets as being changed by a CPU, so that none does, or not.
func (r *rig) reshaping(by bool) {
	r.Helper()
	_, b, err := r.blocks()
	r.must(err)
	b.Reshaping = 0
	if by {
		b.Reshaping = 1
	}
	r.must(r.maps.Blocks.Put(uint32(0), b))
}
