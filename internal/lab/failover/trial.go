// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// requestPatience is the clients' timeout.
const requestPatience = 3 * time.Second

// connectionPatience is how long a connection may take to recover at the end of a trial,
// when a director answers again.
const connectionPatience = 5 * time.Second

// justBefore is how long before the fault pings count: their replies may meet it.
const justBefore = 2 * pingInterval

// workload is what the client does during a trial.
type workload struct {
	site    *site
	pings   *pings
	probe   *prober
	streams []*stream
	idle    []net.Conn

	load    *load.Result
	loadErr error
	done    sync.WaitGroup
}

// startWorkload opens all connections, then starts the rest for a time.
func startWorkload(ctx context.Context, s *site, p Plan, duration time.Duration, seed uint64) (*workload, error) {
	w := &workload{site: s}
	for i := range p.Long + p.Idle {
		c, err := s.dial(2 * time.Second)
		if err == nil {
			err = useIdle(c, time.Now().Add(2*time.Second))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open connections before the fault: %w", err), w.abandon())
		}
		_ = c.SetDeadline(time.Time{})
		if i < p.Long {
			w.streams = append(w.streams, startStream(c, seed+uint64(i)))
		} else {
			w.idle = append(w.idle, c)
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), w.abandon())
		}
	}
	var err error
	if w.pings, err = startPings(s.pair.Client, topology.PairVirtual.Addr(), int(seed)); err != nil {
		return nil, errors.Join(err, w.abandon())
	}
	w.probe = startProbe(p.Probe, s.dial)
	w.done.Go(func() {
		w.load, w.loadErr = load.Run(ctx, load.Plan{
			Target: netip.AddrPortFrom(topology.PairVirtual.Addr(), server.Port), ServerHeader: server.Header,
			Clients: []load.Client{{Namespace: s.pair.Client.Path(), Sources: []netip.Addr{s.source}}},
			Rate:    p.Rate, Arrivals: arrivals.Constant, Seed: seed, Duration: duration, Timeout: requestPatience,
		}, nil)
	})
	return w, nil
}

// abandon ends what there is, of a trial that is not measured.
func (w *workload) abandon() error {
	if w.pings != nil {
		w.pings.stop()
	}
	if w.probe != nil {
		w.probe.stop()
	}
	for _, s := range w.streams {
		_ = s.stop(time.Now())
	}
	for _, c := range w.idle {
		c.Close()
	}
	w.done.Wait()
	return nil
}

// finish ends the workload and fills in what clients noticed, from the fault to the end.
func (w *workload) finish(t *Trial, fault, end time.Time) error {
	w.pings.stop()
	w.probe.stop()
	t.Pings, t.PingsLost = w.pings.since(fault.Add(-justBefore))
	t.OutageMS = ms(time.Duration(t.PingsLost) * pingInterval)
	t.LateMS = ms(w.pings.late)
	t.Probes, t.ProbesFailed = w.probe.since(fault)
	gap, since := w.probe.gap(fault.Add(-100*time.Millisecond), end)
	t.GapMS, t.GapAtMS = ms(gap), ms(since.Sub(fault))

	t.Broken = map[string]int{}
	deadline := time.Now().Add(connectionPatience)
	var all sync.WaitGroup
	var mu sync.Mutex
	note := func(lost *int, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			*lost++
			t.Broken[causeOf(err)]++
		}
	}
	t.Long, t.Idle = len(w.streams), len(w.idle)
	for _, s := range w.streams {
		all.Go(func() { note(&t.LongBroken, s.stop(deadline)) })
	}
	for _, c := range w.idle {
		all.Go(func() {
			note(&t.IdleLost, useIdle(c, deadline))
			c.Close()
		})
	}
	all.Wait()
	for _, s := range w.streams {
		t.LongBytes += s.received
	}
	w.done.Wait()
	if w.loadErr != nil {
		return w.loadErr
	}
	r := w.load
	t.Requests = r.Scheduled
	t.Failed = r.Loss.Total() + r.Unfinished + r.Replies - r.Status.Success
	t.Reset, t.Timeout = r.Loss.Reset+r.Loss.Refused, r.Loss.Timeout
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// try carries out one trial of a cell on a site, which is as before afterwards. logs is
// where messages of the directors go if something was lost; "" for nowhere.
func try(ctx context.Context, s *site, p Plan, t *Trial, logs string) (err error) {
	f, err := faultOf(t.Fault)
	if err != nil {
		return err
	}
	v, err := ParseVariant(t.Variant)
	if err != nil {
		return err
	}
	defer func() {
		var copied error
		if logs != "" && (err != nil || !t.Master || t.IdleLost+t.LongBroken > 0) {
			copied = s.logs(logs)
		}
		err = errors.Join(err, copied, s.reset())
	}()
	if err := s.begin(ctx, v); err != nil {
		return err
	}
	if f.prepare != nil {
		if err := f.prepare(ctx, s); err != nil {
			return err
		}
	}
	if f.arm != nil {
		if err := f.arm(s); err != nil {
			return err
		}
	}
	phase, window := p.phase(t.Block, t.Cell), window(f, v)
	w, err := startWorkload(ctx, s, p, lead+phase+window, uint64(t.Block)<<8)
	if err != nil {
		return err
	}
	if err := sleep(ctx, lead+phase); err != nil {
		return errors.Join(err, w.abandon())
	}
	fault := time.Now()
	if err := suffer(ctx, s, f, v, fault.Add(window)); err != nil {
		return errors.Join(err, w.abandon())
	}
	end := time.Now()
	changes, err := s.masters.all()
	if err != nil {
		return errors.Join(err, w.abandon())
	}
	c := judge(changes, fault, end, f.master)
	t.TakeoverMS, t.BothMS, t.Transitions = -1, ms(c.both), c.transitions
	if c.takeover >= 0 {
		t.TakeoverMS = ms(c.takeover)
	}
	t.Master = s.masters.now()[f.master]
	return w.finish(t, fault, end)
}

// suffer does what the fault is, and waits until the end.
func suffer(ctx context.Context, s *site, f Fault, v Variant, end time.Time) error {
	began := time.Now()
	if err := f.inject(ctx, s); err != nil {
		return err
	}
	if f.then != nil {
		if err := sleep(ctx, f.after(v)-time.Since(began)); err != nil {
			return err
		}
		if err := f.then(ctx, s); err != nil {
			return err
		}
	}
	return sleep(ctx, time.Until(end))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
