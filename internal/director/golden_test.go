// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// What becomes of packets, to the byte: topic by topic, in one rig.
func TestGolden(t *testing.T) {
	w := newWorld(t, small)
	w.timeouts(time.Hour, everyState()...) // no connection expires before its table is played
	for _, topic := range []struct {
		name string
		play func(t *testing.T, w *rig)
	}{
		{"masquerading", goldenMasquerade},
		{"pending SCTP checksum", goldenPendingSCTPChecksum},
		{"direct routing", goldenDirectRouting},
		{"marked packets", goldenMarkedPackets},
		{"refused", goldenRefused},
		{"martians", goldenMartians},
		{"refused with pending checksum", goldenICMPOfPendingChecksum},
		{"refused padded frame", goldenICMPOfPaddedFrame},
		{"ICMP to client", goldenICMPToClient},
		{"ICMP to server", goldenICMPToServer},
		{"ICMP passes", goldenICMPPasses},
		{"ICMP direct", goldenICMPDirect},
		{"quoted UDP checksum of zero", goldenQuotedUDPChecksumOfZero},
		{"quoted short packet", goldenQuotedShortPacket},
		{"quoted pending SCTP checksum", goldenQuotedPendingSCTPChecksum},
		{"without length", goldenWithoutLength},
		{"ICMP of the other family", goldenICMPOfTheOtherFamily},
		{"padded ICMP", goldenPaddedICMP},
		{"fragments", goldenFragments},
		{"fragments interleaved", goldenFragmentsInterleaved},
		{"fragments refused", goldenFragmentsRefused},
		{"cut", goldenCut},
		{"cut fragments", goldenCutFragments},
		{"cut in tunnels", goldenCutTunnels},
		{"not cut", goldenNotCut},
		{"tunnels", goldenTunnels},
		{"tunnel fragments", goldenTunnelFragments},
		{"tunnel errors", goldenTunnelErrors},
		{"tunnel errors across families", goldenTunnelErrorsAcrossFamilies},
		{"local server", goldenLocalServer},
		{"local server, ICMP", goldenLocalICMP},
		{"local server, fragments", goldenLocalFragments},
		{"way out", goldenOutgoing},
		{"ICMP of deleted server", goldenICMPOfDeletedServer},
	} {
		t.Run(topic.name, func(t *testing.T) { topic.play(t, w.in(t)) })
	}
}

// sent is a frame that comes in from one side, or leaves the director's own
// stack.
type sent struct {
	fromServer bool
	context    skBuff
	frame      []byte
	fromHere   bool
	stays      bool // as a packet of a setup: the stack has it then
}

func byClient(p testenv.Packet) sent { return sent{frame: p.Frame()} }
func byServer(p testenv.Packet) sent { return sent{frame: p.Frame(), fromServer: true} }

// byDirector is what its own stack sends to a client.
func byDirector(p testenv.Packet) sent { return sent{frame: p.Frame(), fromHere: true, stays: true} }

// toDirector is a client's packet to a server that is the director.
func toDirector(p testenv.Packet) sent { return sent{frame: p.Frame(), stays: true} }

// golden says what becomes of a packet, to the byte.
type golden struct {
	name  string
	setup []sent // what passes before it
	in    sent
	want  outcome
}

// outcome judges what became of a frame.
type outcome struct {
	reason string // "" if it was forwarded
	judge  func(t *testing.T, in []byte, got result)
}

// becomes expects a packet to come out as another one.
func becomes(p testenv.Packet) outcome { return becomesFrame(p.Frame()) }

func becomesFrame(want []byte) outcome { return comesOut("", redirect, want) }

// goesOn expects the stack to have it as another one.
func goesOn(reason string, p testenv.Packet) outcome { return comesOut(reason, pass, p.Frame()) }

func comesOut(reason string, verdict verdict, want []byte) outcome {
	return outcome{reason, func(t *testing.T, _ []byte, got result) {
		t.Helper()
		if got.verdict != verdict {
			t.Fatalf("%s, want %s", got.verdict, verdict)
		}
		if diff := cmp.Diff(want, got.frame); diff != "" {
			t.Errorf("the packet differs (-want +got):\n%s", diff)
		}
	}}
}

// stays expects it untouched; the verdict is the reason's first word.
func stays(reason string) outcome {
	want := pass
	if !strings.HasPrefix(reason, "pass") {
		want = drop
	}
	return outcome{reason, func(t *testing.T, in []byte, got result) {
		t.Helper()
		wantUntouched(t, want, got, in)
	}}
}

// refused expects it to be answered by an ICMP error.
func refused(reason string, want testenv.Refusal) outcome {
	return refusedBy(netip.Addr{}, reason, want)
}

// refusedReply expects it of a server's reply, from the director's own address where the
// kernel says that, else from the service's.
func (f family) refusedReply(vip int, reason string, want testenv.Refusal) outcome {
	if sourceSaid() {
		return refusedBy(f.own(), reason, want)
	}
	return refusedBy(netip.MustParseAddr(f.vip(vip)), reason, want)
}

func refusedBy(by netip.Addr, reason string, want testenv.Refusal) outcome {
	return outcome{"refused " + reason, func(t *testing.T, in []byte, got result) {
		t.Helper()
		if got.verdict != redirect {
			t.Fatalf("%s, want redirect", got.verdict)
		}
		said, err := testenv.RefusedBy(in, got.frame, by)
		if err != nil || said != want {
			t.Errorf("%+v, %v; want %+v", said, err, want)
		}
	}}
}

// check plays the table. Each packet comes twice, the second time as if the
// hardware had summed it up (CHECKSUM_COMPLETE): the kernel then compares the
// sum that the program leaves with that of the bytes that it leaves.
func (r *rig) check(t *testing.T, table []golden) {
	for _, g := range table {
		t.Run(g.name, func(t *testing.T) {
			r := r.in(t)
			r.forgetAllowances()
			for i, s := range g.setup {
				want := redirect
				if s.stays {
					want = pass
				}
				if got := r.put(s, 0); got.verdict != want {
					t.Fatalf("packet %d of the setup: %s", i, got.verdict)
				}
			}
			got := r.judge(t, g, 0)
			if summing() && !(strings.HasPrefix(g.want.reason, "refused") && cut(g.in.frame, got)) {
				r.judge(t, g, checksumComplete)
			}
		})
	}
}

// cut reports whether an ICMP error quotes less than the packet that it is
// about. The kernel then forgets the sum, but compares it all the same.
func cut(in []byte, got result) bool {
	return got.verdict == redirect && !bytes.HasSuffix(got.frame, in[14:])
}

func (r *rig) judge(t *testing.T, g golden, flags uint32) (got result) {
	t.Helper()
	reasons := r.reasonsOf(func() { got = r.put(g.in, flags) })
	want := map[string]uint64{}
	if g.want.reason != "" {
		want[g.want.reason] = 1
	}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	g.want.judge(t, bytes.Clone(g.in.frame), got)
	return got
}

// put sends a frame in; flags are BPF_PROG_TEST_RUN's.
func (r *rig) put(s sent, flags uint32) result {
	r.Helper()
	program := r.progs.LbClient
	switch {
	case s.fromServer:
		program = r.progs.LbServer
	case s.fromHere:
		program = r.progs.LbLocal
	}
	return r.sendFlagged(program, s.context, s.frame, flags)
}

// forgetAllowances lets every sender be told of errors again: that there are
// limits has tests of its own.
func (r *rig) forgetAllowances() {
	r.Helper()
	r.must(deleteKeys(r.maps.Allowances, func(bpfobj.LbAddress, bpfobj.LbAllowance) bool { return true }),
		r.maps.Allowances.Put(bpfobj.LbAddress{}, bpfobj.LbAllowance{}))
}
