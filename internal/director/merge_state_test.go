// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What the other director of a pair tells of a connection at about the time of packets here, as while
// the addresses move, does not take its state back: it was sent before it knew of them.
func TestMergeKeepsLaterState(t *testing.T) {
	t.Parallel()
	testenv.Patient(t, laterStateStays) // the data plane compares the times with a slack of 250 ms
}

func laterStateStays(t testing.TB) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	merge := func(c model.Connection) bool {
		t.Helper()
		errs, m, err := r.Merge([]model.Connection{c}, false)
		r.must(err)
		r.must(errs...)
		return m.Took[0]
	}
	c := replica(s.Key, client1, "172.16.0.10:8080")
	c.State, c.Expires = "SYN_RECV", time.Minute
	merge(c)
	told := func(state string, idle, expires time.Duration) model.Connection {
		c.State, c.Idle, c.Expires = state, idle, expires
		return c
	}
	const established, closing = 20 * time.Minute, 3 * time.Minute
	for _, x := range []struct {
		flags string // of a packet here
		told  model.Connection
		want  string // its state then
	}{
		{"A", told("SYN_RECV", 50*time.Millisecond, time.Minute), "ESTABLISHED"},
		{"", told("ESTABLISHED", 0, established), "ESTABLISHED"},
		{"FA", told("ESTABLISHED", 50*time.Millisecond, established), "CLOSE_WAIT"},
		{"A", told("FIN_WAIT", 0, closing), "FIN_WAIT"},          // as far, and at about the same time: that which comes
		{"", told("ESTABLISHED", 0, established), "ESTABLISHED"}, // no packet came here since
		{"R", told("ESTABLISHED", 50*time.Millisecond, established), "CLOSE"},
		{"", told("CLOSE", 0, 20*time.Second), "CLOSE"},
		{"", told("SYN_RECV", 0, time.Minute), "SYN_RECV"}, // another connection of the same client, there
	} {
		if x.flags != "" {
			if got := r.fromClient(testenv.TCP(client1, vip, x.flags)); got.verdict != redirect {
				t.Fatalf("a packet %s: %s", x.flags, got.verdict)
			}
		}
		took := merge(x.told)
		got := r.connection(client1)
		if got.State != x.want || took != (x.told.State == x.want) {
			t.Errorf("after %q, told %s: it is %s, want %s; told counts as entered: %v", x.flags, x.told.State, got.State, x.want, took)
		}
		if took != (got.Flags&model.ConnReplica != 0) {
			t.Errorf("after %q, told %s: it has the flags %v", x.flags, x.told.State, got.Flags.Names())
		}
	}
}
