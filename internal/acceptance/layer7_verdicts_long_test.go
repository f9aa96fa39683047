// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/events"
)

// verdictTime is how long after a verdict HAProxy may still send a request to the server: the load's
// clocks, and a machine that is busy. A reload takes longer.
const verdictTime = 100 * time.Millisecond

// The same while HAProxy reloads all the time: a worker that begins has the verdict within a moment.
func TestLayer7VerdictDuringReloads(t *testing.T) {
	l := newLossless(t)
	server := l.servers[0]
	for round := range 10 {
		stop := l.reloadAgain(round)
		time.Sleep(300 * time.Millisecond)
		server.SetSick(true)
		var down time.Time
		l.await("s1 is down", func() bool { down = l.lastDown("s1"); return !down.IsZero() })
		end := l.without("s1", down.Add(verdictTime))
		time.Sleep(time.Second)
		end()
		stop()
		server.SetSick(false)
		l.await("s1 is up", func() bool { return l.lastDown("s1").IsZero() })
	}
	l.none(l.finish())
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

// lastDown is when a server was found down; zero: it is up.
func (l *lossless) lastDown(server string) (at time.Time) {
	l.t.Helper()
	for line := range strings.Lines(l.do("events", "-n", "1000", "-o", "json")) {
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			l.t.Fatal(err)
		}
		switch {
		case e.Server != server:
		case e.Kind == events.ServerDown:
			at = e.Time
		case e.Kind == events.ServerUp:
			at = time.Time{}
		}
	}
	return at
}
