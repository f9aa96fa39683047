// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/director"
	"imbang/internal/lab/load"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/topology"
	"imbang/internal/model"
)

var trials = flag.Int("trials", 50, "trials of each kind of failure")

// How long a dead server keeps its place in the kernel's table, and how many requests
// that costs; without jitter, where a failure just after a check takes longest, and with
// the default.
func TestMeasureDetection(t *testing.T) {
	for _, jitter := range []string{"0 %", "10 %"} {
		for _, one := range []struct {
			name, check string
			fault       syscall.Signal
		}{
			{"killed, TCP check", "tcp: {}", syscall.SIGKILL},
			{"killed, HTTP check", "http: {}", syscall.SIGKILL},
			{"stopped, HTTP check", "http: {}", syscall.SIGSTOP},
		} {
			t.Run(one.name+", jitter "+jitter, func(t *testing.T) { measureDetection(t, one.name, one.check, jitter, one.fault) })
		}
	}
}

// checkQuickly is a check that finds a server out within 700 ms.
const checkQuickly = `
checks:
  web:
    http: {}
    interval: 200 ms
    timeout: 100 ms
    rise: 2
    fall: 3
    jitter: 0 %
`

func measureDetection(t *testing.T, name, kind, jitter string, fault syscall.Signal) {
	k := newKeeper(t, 3, strings.NewReplacer("http: {}", kind, "0 %", jitter).Replace(checkQuickly)+threeServers)
	all := "a up/1, b up/1, c up/1"
	k.await("all servers", func() bool { return k.states() == all })
	table := k.table()
	const rate = 200
	const each = 2 * time.Second // of a trial
	const bound = 700.0          // ms, of checkQuickly
	done := make(chan *load.Result)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		r, err := load.Run(ctx, load.Plan{
			Target: netip.AddrPortFrom(k.Virtual(topology.IPv4), 80), Timeout: 2 * time.Second,
			Clients: []load.Client{{Namespace: k.Clients[0].Namespace.Path(), Sources: k.Clients[0].Addresses[topology.IPv4]}},
			Rate:    rate, Duration: time.Duration(*trials)*each + 5*time.Second,
		}, nil)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		done <- r
	}()
	var took, told []float64
	for i := range *trials {
		next := time.Now().Add(each)
		time.Sleep(time.Duration(i%20) * 10 * time.Millisecond) // at any time of the interval
		pids, err := k.nginx[1].PIDs()
		if err != nil {
			t.Fatal(err)
		}
		signal := func(s syscall.Signal) {
			for _, pid := range pids {
				_ = syscall.Kill(pid, s)
			}
		}
		at := time.Now()
		signal(fault)
		took = append(took, k.outSince(table, k.Servers[1].Addr[topology.IPv4], at))
		told = append(told, k.downSince(at))
		if fault == syscall.SIGKILL {
			k.kill(1)
			k.revive(1)
		} else {
			signal(syscall.SIGCONT)
		}
		k.await("up", func() bool { return k.states() == all })
		time.Sleep(time.Until(next))
	}
	cancel()
	r := <-done
	slices.Sort(took)
	row := detected{
		Name: name, Jitter: jitter, Bound: bound, Table: stats.Summarize(took), P90: took[int(0.9*float64(len(took)-1))],
		Event: stats.Summarize(told), All: took, Lost: float64(r.Loss.Total()) / float64(len(took)),
	}
	for _, ms := range took {
		if ms > bound {
			row.Above++
		}
	}
	t.Logf("%d trials: table %.0f to %.0f ms, median %.0f, 90 %% %.0f; event %.0f to %.0f; %d above %.0f ms; %d requests, lost %+v",
		len(took), row.Table.Min, row.Table.Max, row.Table.Median, row.P90, row.Event.Min, row.Event.Max, row.Above, bound, r.Replies, r.Loss)
	if row.Above > 0 {
		t.Errorf("%d of %d trials above %.0f ms", row.Above, len(took), bound)
	}
	note(t, func(all *measured, commit string) {
		row.Commit = commit
		all.Detection = put(all.Detection, row, func(x detected) bool { return x.Name == row.Name && x.Jitter == row.Jitter })
	})
}

// table opens the director.
func (k *keeper) table() (d *director.Director) {
	k.t.Helper()
	err := k.Director.Do(func() (err error) {
		d, err = director.Open()
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = d.Close() })
	return d
}

// outSince is the time from a moment until a server has weight 0 in the kernel [ms].
func (k *keeper) outSince(d *director.Director, server netip.Addr, at time.Time) float64 {
	k.t.Helper()
	for time.Since(at) < 5*time.Second {
		services, err := d.Services()
		now := time.Now()
		if err != nil {
			k.t.Fatal(err)
		}
		if slices.ContainsFunc(services[0].Servers, func(s model.ServerStatus) bool { return s.Addr == server && s.EffectiveWeight() == 0 }) {
			return float64(now.Sub(at)) / 1e6
		}
		time.Sleep(500 * time.Microsecond)
	}
	k.t.Fatalf("%s is not out of rotation after %s", server, time.Since(at))
	return 0
}

// downSince is the time from a moment until the check ended by which the last server
// went down [ms].
func (k *keeper) downSince(at time.Time) float64 {
	k.t.Helper()
	var down time.Time
	for range 100 {
		err := k.api().Events(k.t.Context(), 20, false, func(e events.Event) error {
			if e.Kind == events.ServerDown {
				down = e.Time
			}
			return nil
		})
		if err != nil {
			k.t.Fatal(err)
		}
		if down.After(at) {
			return float64(down.Sub(at)) / 1e6
		}
		time.Sleep(time.Millisecond)
	}
	k.t.Fatal("no event of a server that went down")
	return 0
}
