// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// alone runs one prepared worker on its own thread.
func alone(t *testing.T, p Plan, prepare func(*worker)) *worker {
	t.Helper()
	p = p.withDefaults()
	w, err := newWorker(p, 0, newShared(p))
	if err != nil {
		t.Fatal(err)
	}
	prepare(w)
	done := make(chan error)
	onThread(func() { done <- w.run(time.Now()) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return w
}

// Across a network the handshake is not over when connect returns, and the
// request goes out on EPOLLOUT.
func TestWithoutEagerSends(t *testing.T) {
	for name, target := range map[string]netip.AddrPort{
		"answered": serve(t, "127.0.0.1:0", always(page)), "refused": closedPort(t),
	} {
		w := alone(t, Plan{Target: target, Rate: 2000, Connections: retryEvery - 1}, func(w *worker) {
			w.eager.score = discouraged
		})
		want := w.tally.replies
		if name == "refused" {
			want = w.tally.loss.Refused
		}
		if want != retryEvery-1 {
			t.Errorf("%s: %d replies, loss %+v", name, w.tally.replies, w.tally.loss)
		}
	}
}

// Before Linux 5.11 waits are whole milliseconds, the rest is polled.
func TestCoarseWaits(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	w := alone(t, Plan{Target: target, Rate: 400, Connections: 100}, func(w *worker) { w.poller.coarse = true })
	if w.tally.replies != 100 {
		t.Errorf("%d replies, loss %+v", w.tally.replies, w.tally.loss)
	}
}

func TestEagernessGivesUpAndComesBack(t *testing.T) {
	var g eagerness
	tried := 0
	for range 64 * discouraged {
		if g.try() {
			tried++
			g.learn(false)
		}
	}
	if tried > 2*discouraged || tried <= discouraged {
		t.Errorf("%d attempts that fail", tried)
	}
	for range 64 * discouraged {
		if g.try() {
			g.learn(true)
		}
	}
	if !g.try() || g.score > 0 {
		t.Errorf("score %d after attempts that work", g.score)
	}
}

func TestErrorsByCause(t *testing.T) {
	for _, tc := range []struct {
		errno unix.Errno
		open  bool
		want  Loss
	}{
		{unix.ECONNREFUSED, false, Loss{Refused: 1}},
		{unix.ECONNRESET, true, Loss{Reset: 1}},
		{unix.EPIPE, true, Loss{Reset: 1}},
		{unix.ETIMEDOUT, false, Loss{Timeout: 1, TimeoutConnecting: 1}},
		{unix.ETIMEDOUT, true, Loss{Timeout: 1}},
		{unix.EHOSTUNREACH, false, Loss{Unreachable: 1}},
		{unix.EMFILE, false, Loss{Client: ClientLoss{Descriptors: 1}}},
		{unix.ENFILE, false, Loss{Client: ClientLoss{Descriptors: 1}}},
		{unix.EADDRNOTAVAIL, false, Loss{Client: ClientLoss{Addresses: 1}}},
		{unix.ENOBUFS, false, Loss{Client: ClientLoss{Other: 1, lastOther: unix.ENOBUFS}}},
	} {
		var l Loss
		l.remote(tc.errno, tc.open)
		if l != tc.want || l.Total() != 1 {
			t.Errorf("%v: %+v, want %+v", tc.errno, l, tc.want)
		}
	}
}
