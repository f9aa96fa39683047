// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// XDP's actions (enum xdp_action of linux/bpf.h).
const (
	xdpPass     verdict = 2
	xdpRedirect verdict = 4
)

// ownsRepliesHere lets XDP programs work as if they were attached.
func (r *rig) ownsRepliesHere() {
	r.Helper()
	r.must(r.ns.Do(func() error { return r.pretendXDP(clientDev, serverDev) }))
}

// forgetAsked makes every neighbour one that was not asked lately.
func (r *rig) forgetAsked() {
	r.Helper()
	none := make([]bpfobj.LbAskedNeighbour, ebpf.MustPossibleCPU())
	for slot := range r.maps.Asked.MaxEntries() {
		r.must(r.maps.Asked.Put(slot, none))
	}
}

// newReplyOwner is a world with XDP in front, and without services of marks, with
// which the classifiers open all connections.
func newReplyOwner(t *testing.T) *rig {
	r := newXDPWorld(t)
	for _, f := range families {
		r.must(r.DeleteService(f.marked(markMasq).Key), r.DeleteService(f.marked(markDirect).Key))
	}
	r.ownsRepliesHere()
	return r
}

// xdp puts a frame into the XDP program of a side, on one CPU: each asks
// neighbours by itself.
func (r *rig) xdp(fromServer bool, frame []byte) (v result) {
	r.Helper()
	program, device := r.progs.LbXdpClient, r.client
	if fromServer {
		program, device = r.progs.LbXdpServer, r.server
	}
	r.must(r.ns.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var all, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		one.Set(0)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		defer unix.SchedSetaffinity(0, &all)
		o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256),
			Context: xdpContext{DataEnd: uint32(len(frame)), IngressIfindex: uint32(device)}}
		action, err := program.Run(&o)
		v = result{verdict(action), o.DataOut}
		return err
	}))
	return v
}

// sure is xdp, again if the packet was left because it was time to ask the
// neighbour: not twice in a row, unless the CPU was busy for most of the 250 ms
// after which XDP asks again.
func (r *rig) sure(fromServer bool, frame []byte) result {
	r.Helper()
	for last := (time.Time{}); ; {
		began := time.Now()
		got := r.xdp(fromServer, frame)
		if got.verdict != xdpPass || time.Since(last) < 200*time.Millisecond {
			return got
		}
		last = began
	}
}

// What XDP sends is to the byte what the classifiers send.
func TestXDPGolden(t *testing.T) {
	r := newReplyOwner(t)
	for _, f := range families {
		for name, c := range map[string]struct {
			vip, n, port int
			direct       bool
		}{
			"other port": {vipMasq, 0, 8080, false}, "same port": {vipSamePort, 1, 80, false},
			"direct": {vipDirect, 2, 80, true}, "every port, persistent": {vipAll, 3, 80, false},
		} {
			client, vip, server := at(f.client, 2000), at(f.vip(c.vip), 80), at(f.server(c.n), c.port)
			toServer := func(p testenv.Packet) testenv.Packet {
				if c.direct {
					return onward(p)
				}
				return onward(p.To(server))
			}
			for protocol, first := range map[string]testenv.Packet{"TCP": testenv.TCP(client, vip, "S"), "UDP": testenv.UDP(client, vip, "question")} {
				for variant, p := range map[string]testenv.Packet{
					"": first, ", odd length": first.Payload("odd"), ", no data": first.Payload(""),
					", ECN, DSCP": first.TOS(0x2b), ", no checksum": first.NoChecksum(), ", known": first,
				} {
					if protocol == "TCP" && variant == ", no checksum" {
						continue
					}
					t.Run(f.name+", "+name+", "+protocol+variant, func(t *testing.T) {
						r := r.in(t)
						wantXDP(t, r.sure(false, p.Frame()), toServer(p))
						if protocol == "TCP" {
							p = p.Flags("PA").Payload("GET /")
							wantXDP(t, r.sure(false, p.Frame()), toServer(p))
						}
						if c.direct {
							return
						}
						answer := p.Turned().From(server).Flags("SA").Payload("answer")
						wantXDP(t, r.sure(true, answer.Frame()), backward(answer.From(vip)))
						if got := r.xdp(false, answer.Frame()); got.verdict != xdpPass {
							t.Errorf("where clients are: action %d, want it to be left", got.verdict)
						}
						if protocol == "TCP" {
							wantXDP(t, r.sure(true, answer.Flags("FA").Frame()), backward(answer.From(vip).Flags("FA")))
						}
					})
				}
			}
		}
	}
}

func wantXDP(t *testing.T, got result, want testenv.Packet) {
	t.Helper()
	if got.verdict != xdpRedirect {
		t.Fatalf("action %d, want a redirect", got.verdict)
	}
	if diff := cmp.Diff(want.Frame(), got.frame); diff != "" {
		t.Errorf("the packet differs (-want +got):\n%s", diff)
	}
}

// What XDP does not take, it leaves as it was, and nothing is counted.
func TestXDPLeaves(t *testing.T) {
	r := newReplyOwner(t)
	for _, f := range families {
		client, vip := at(f.client, 3000), at(f.vip(vipMasq), 80)
		syn, udp := testenv.TCP(client, vip, "S"), testenv.UDP(client, vip, "question")
		leave := map[string][]byte{
			"TTL 1":            syn.TTL(1).Frame(),
			"SCTP":             testenv.SCTP(client, vip, testenv.SCTPInit).Frame(),
			"for another host": syn.MACs(routerMAC, "02:00:00:00:09:09").Frame(),
			"no service":       syn.To(at(f.vip(200), 80)).Frame(),
			"no connection":    syn.Flags("A").Frame(),
			"no server":        syn.To(at(f.vip(vipEmpty), 80)).Frame(),
			"one packet":       udp.To(at(f.vip(vipOnePacket), 80)).Frame(),
			"truncated":        syn.Frame()[:40],
			"pending checksum": pendingChecksum(f, udp.Frame()),
			"tagged":           tagged(syn.Frame()),
		}
		if f.number == model.IPv4 {
			leave["options"] = syn.Options(1).Frame()
		} else {
			leave["extension header"] = syn.Extension(testenv.HopByHop).Frame()
		}
		for i, fragment := range udp.Payload(string(make([]byte, 100))).Fragments(64) {
			leave[fmt.Sprintf("fragment %d", i)] = fragment
		}
		for name, frame := range leave {
			t.Run(f.name+", "+name, func(t *testing.T) {
				r := r.in(t)
				before := r.tally()
				var got result
				if reasons := r.reasonsOf(func() { got = r.xdp(false, frame) }); len(reasons) > 0 {
					t.Errorf("reasons counted: %v", reasons)
				}
				if got.verdict != xdpPass || !bytes.Equal(got.frame, frame) {
					t.Errorf("action %d, want the packet as it was to pass", got.verdict)
				}
				if after := r.tally(); after != before {
					t.Errorf("counted: before\n%s\nafter\n%s", before, after)
				}
			})
		}
	}
}

// With services of marks the classifiers open all connections: what is to set a
// mark comes behind XDP.
func TestXDPLeavesMarks(t *testing.T) {
	r := newXDPWorld(t)
	r.ownsRepliesHere()
	for _, f := range families {
		for range 2 {
			p := testenv.UDP(at(f.client, 3000), at(f.vip(vipMasq), 80), "question")
			if got := r.xdp(false, p.Frame()); got.verdict != xdpPass {
				t.Errorf("%s: action %d, want it to be left", f.name, got.verdict)
			}
		}
	}
}

// A full table drops here as there; drop_packet takes turns, which are the
// classifiers' to count.
func TestXDPDrops(t *testing.T) {
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 64})
	r.addService(tcpService(vip, "rr"), 1)
	r.ownsRepliesHere()
	reasons := r.reasonsOf(func() {
		for i := range 200 {
			r.xdp(false, testenv.TCP(nthClient(i), vip, "S").Frame())
		}
	})
	if reasons["drop table full"] == 0 || len(reasons) != 1 {
		t.Errorf("reasons %v, want a full table alone", reasons)
	}
	set, err := r.config()
	r.must(err)
	set.DropPacket, set.AmDroprate = uint32(bpfobj.LbDefenceModeDEFENCE_ALWAYS), 1
	r.must(putConfig(r.maps.Config, set))
	if got := r.xdp(false, testenv.TCP(nthClient(300), vip, "S").Frame()); got.verdict != xdpPass {
		t.Errorf("action %d, want it to be left", got.verdict)
	}
}

// tally is all that a director counts.
func (r *rig) tally() string {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	for i := range all {
		all[i].Rates = model.Rates{}
		for j := range all[i].Servers {
			all[i].Servers[j].Rates = model.Rates{}
		}
	}
	return fmt.Sprintf("%+v", all)
}

// pendingChecksum is a UDP frame whose checksum the hardware is to fill in: the
// sum of the pseudo header stands there.
func pendingChecksum(f family, frame []byte) []byte {
	udp := 14 + f.header
	addresses := frame[udp-8 : udp]
	if f.number == model.IPv6 {
		addresses = frame[udp-32 : udp]
	}
	length := len(frame) - udp
	sum := ^testenv.Sum(addresses, []byte{0, 17, byte(length >> 8), byte(length)})
	frame[udp+6], frame[udp+7] = byte(sum>>8), byte(sum)
	return frame
}

func tagged(frame []byte) []byte {
	return append(append(bytes.Clone(frame[:12]), 0x81, 0, 0, 5), frame[12:]...)
}

// A packet whose connection XDP opened, and which then cannot go from there, is
// the classifier's: everything is counted once.
func TestXDPOpensAhead(t *testing.T) {
	r := newReplyOwner(t)
	for _, f := range families {
		for name, vip := range map[string]int{"neighbour not asked": vipMasq, "tunnel with a checksum": vipTunnel + 2, "local": vipLocal} {
			t.Run(f.name+", "+name, func(t *testing.T) {
				r := r.in(t)
				r.forgetAsked()
				service := at(f.vip(vip), 80)
				key := model.AddrKey(model.TCP, netip.MustParseAddrPort(service))
				before := r.status(key).Stats
				p := testenv.TCP(at(f.client, 4000), service, "S")
				if got := r.xdp(false, p.Frame()); got.verdict != xdpPass || !bytes.Equal(got.frame, p.Frame()) {
					t.Fatalf("action %d, want it to be left", got.verdict)
				}
				r.fromClient(p)
				if got := r.status(key).Stats.Sub(before); got.Conns != 1 || got.InPkts != 1 {
					t.Errorf("%d connections and %d packets counted, want 1 and 1", got.Conns, got.InPkts)
				}
			})
		}
	}
}

// A connection by XDP has the states, counts and bytes that it has by the
// classifiers.
func TestXDPCountsAlike(t *testing.T) {
	for _, f := range families {
		r := newXDPRig(t)
		r.timeouts(time.Hour, everyState()...) // no connection expires between two counts
		s := tcpService(at(f.vip(1), 80), "rr")
		r.serve(s, f.real(0, 8080))
		r.ownsRepliesHere()
		taken := 0
		sum := func() model.ServiceStatus { return r.status(s.Key) }
		for i, walk := range stateWalks {
			t.Run(f.name+", "+walk.steps, func(t *testing.T) {
				r := r.in(t)
				var grown [2]model.Stats
				var active, inactive [2]uint32
				for way := range 2 {
					client := at(f.client, 5000+2*i+way)
					before := sum()
					for _, step := range strings.Fields(walk.steps) {
						from, flags, _ := strings.Cut(step, ":")
						p := testenv.TCP(client, at(f.vip(1), 80), flags)
						if from == "s" {
							p = testenv.TCP(at(f.server(0), 8080), client, flags)
						}
						if way == 0 && r.sureThrough(from == "s", p) {
							taken++
						} else if way == 1 {
							r.put(sent{frame: p.Frame(), fromServer: from == "s"}, 0)
						}
					}
					after := sum()
					grown[way] = after.Stats.Sub(before.Stats)
					active[way], inactive[way] = after.Servers[0].Active-before.Servers[0].Active, after.Servers[0].Inactive-before.Servers[0].Inactive
					if got := r.connection(client).State; got != walk.state {
						t.Errorf("state %s, want %s", got, walk.state)
					}
				}
				if grown[0] != grown[1] || active[0] != active[1] || inactive[0] != inactive[1] {
					t.Errorf("with XDP %+v, %d active, %d inactive; without %+v, %d, %d", grown[0], active[0], inactive[0], grown[1], active[1], inactive[1])
				}
			})
		}
		if taken == 0 {
			t.Error("XDP took none of the packets")
		}
	}
}

// sureThrough puts a packet into XDP, and into the classifier if that leaves
// it; it reports whether XDP took it.
func (r *rig) sureThrough(fromServer bool, p testenv.Packet) bool {
	r.Helper()
	if got := r.xdp(fromServer, p.Frame()); got.verdict == xdpRedirect {
		return true
	}
	if got := r.put(sent{frame: p.Frame(), fromServer: fromServer}, 0); got.verdict != redirect {
		r.Errorf("left by XDP: %s", got.verdict)
	}
	return false
}

// xdpContext is struct xdp_md of linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta uint32
	IngressIfindex          uint32
	RxQueueIndex            uint32
	EgressIfindex           uint32
}
