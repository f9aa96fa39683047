// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
)

// verdictTime is for HAProxy to follow a verdict, on a machine that is busy. A reload takes longer.
const verdictTime = 100 * time.Millisecond

// The same while HAProxy reloads all the time. A worker that has read its configuration before the
// verdict may send the server a request in its first moment; no more than that.
func TestLayer7VerdictDuringReloads(t *testing.T) {
	const rounds, first = 10, 2 // requests of a worker's first moment
	l := newLossless(t)
	server, total := l.servers[0], 0
	var out []span
	for round := range rounds {
		stop := l.reloadAgain(round)
		time.Sleep(300 * time.Millisecond)
		server.SetSick(true)
		var down time.Time
		l.await("s1 is down", func() bool { down = l.lastDown("s1"); return !down.IsZero() })
		time.Sleep(time.Second)
		end := time.Now()
		stop()
		late := server.Between(down.Add(verdictTime), end)
		for _, at := range late {
			t.Logf("round %d: a request %v after the verdict", round, at.Sub(down).Round(time.Millisecond))
		}
		if len(late) > first {
			t.Errorf("round %d: s1 got %d requests after the verdict", round, len(late))
		}
		total += len(late)
		out = append(out, span{begin: down, end: end})
		server.SetSick(false)
		l.await("s1 is up", func() bool { return l.lastDown("s1").IsZero() })
	}
	t.Logf("%d requests after %d verdicts", total, rounds)
	// A verdict ends what is under way at the server.
	failed := slices.DeleteFunc(l.finish(), func(r haproxytest.Request) bool {
		return slices.ContainsFunc(out, func(s span) bool { return s.during(r.Begin, r.End) })
	})
	l.none(failed)
}

// reloadAgain has HAProxy reload all the time until it is stopped.
func (l *lossless) reloadAgain(round int) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			end := l.while("round %d, reload %d", round, i)
			l.shop.retries = 2 + (l.shop.retries+1)%5
			l.configure(l.shop.text())
			if o := imbang(l.t, l.host.Namespace(), "", "reload"); o.status != 0 {
				l.t.Errorf("reload: %s", o.stderr)
			}
			end()
		}
	})
	stop = func() { cancel(); reloads.Wait() }
	l.t.Cleanup(stop)
	return stop
}
