// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"imbang/internal/testenv"
)

// Too big, but the sender did not ask to be told: there is no fragmentation.
func TestTooBigWithoutDF(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.syn(client1, vip)
	p := testenv.TCP(client1, vip, "A").Payload(strings.Repeat("x", 1461))
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(p), p.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop too big no df": 1}, got); diff != "" {
		t.Error(diff)
	}
	if n := binary.BigEndian.Uint16(p.Frame()[16:]); n != 1501 {
		t.Errorf("the packet has %d bytes", n)
	}
}

// A sender gets six errors at once and then one a second; path MTU discovery
// is not limited, nor is another sender.
func TestICMPRateLimit(t *testing.T) {
	r := newRig(t, small)
	r.must(r.AddService(tcpService(vip, "rr")))
	syn := testenv.TCP(client1, vip, "S")
	for i := range 6 {
		if got := r.fromClient(syn); got.verdict != redirect {
			t.Fatalf("refusal %d: %s", i+1, got.verdict)
		}
	}
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(syn), syn.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop rate limit": 1}, got); diff != "" {
		t.Error(diff)
	}
	if got := r.fromClient(testenv.TCP("10.10.0.3:1234", vip, "S")); got.verdict != redirect {
		t.Errorf("another sender: %s", got.verdict)
	}
}
