// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"imbang/internal/testenv"
)

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
