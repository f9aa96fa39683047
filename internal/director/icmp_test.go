// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"imbang/internal/testenv"
)

// A sender gets six errors at once and then one a second; path MTU discovery
// is not limited, nor is another sender.
func TestICMPRateLimit(t *testing.T) {
	r := newRig(t, small)
	r.must(r.AddService(tcpService(vip, "rr")))
	syn := testenv.TCP(client1, vip, "S")
	began, n := time.Now(), 0
	got := r.reasonsOf(func() {
		last := r.fromClient(syn)
		for ; last.verdict == redirect && n < 100; n++ {
			last = r.fromClient(syn)
		}
		wantUntouched(t, drop, last, syn.Frame())
	})
	if most := 6 + int((time.Since(began)+50*time.Millisecond)/time.Second); n < 6 || n > most {
		t.Errorf("%d refusals, want 6 to %d", n, most)
	}
	if diff := cmp.Diff(map[string]uint64{"refused no server": uint64(n), "drop rate limit": 1}, got); diff != "" {
		t.Error(diff)
	}
	if got := r.fromClient(testenv.TCP("10.10.0.3:1234", vip, "S")); got.verdict != redirect {
		t.Errorf("another sender: %s", got.verdict)
	}
}
