// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
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

// workload is what clients do during a trial.
type workload struct {
	site    *site
	plan    Plan
	pings   *pings
	probe   *prober
	streams []*stream
	idle    []net.Conn
	sides   []net.Conn // opened during a partition
	opened  time.Time  // the last one of the long and idle ones
	began   time.Time  // of the requests

	load    *load.Result
	loadErr error
	done    sync.WaitGroup
}

// startWorkload opens most connections, then starts the rest for a time, and opens the last
// ones just before the fault, which comes after a part of that time.
func startWorkload(ctx context.Context, s *site, p Plan, fault, duration time.Duration, seed uint64) (w *workload, err error) {
	w = &workload{site: s, plan: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.abandon())
		}
	}()
	if err := w.open(ctx, p.Long, p.Long+p.Idle-p.late(), seed); err != nil {
		return w, err
	}
	if w.pings, err = startPings(s.pair.Clients[first], topology.PairVirtual(s.setting.Family).Addr(), int(seed)); err != nil {
		return w, err
	}
	w.probe = startProbe(p.Probe, s.dial)
	w.began = time.Now()
	w.done.Go(func() {
		w.load, w.loadErr = load.Run(ctx, load.Plan{
			Target: s.target(), ServerHeader: server.Header, Clients: s.loadClients(),
			Rate: p.Rate, Arrivals: arrivals.Constant, Seed: seed, Duration: duration, Timeout: requestPatience,
		}, nil)
	})
	if err := sleep(ctx, fault-youngest-slack-p.opening(p.late())-time.Since(w.began)); err != nil {
		return w, err
	}
	if err := w.open(ctx, 0, p.late(), seed); err != nil {
		return w, err
	}
	return w, nil
}

// open opens connections, of which the first ones are long.
func (w *workload) open(ctx context.Context, long, n int, seed uint64) error {
	conns, err := w.site.open(ctx, first, echoPort, n, w.plan.OpenRate)
	for i, c := range conns {
		if i < long {
			w.streams = append(w.streams, startStream(c, seed+uint64(i)))
		} else {
			w.idle = append(w.idle, c)
		}
	}
	w.opened = time.Now()
	if err != nil {
		return fmt.Errorf("open connections before the fault: %w", err)
	}
	return nil
}

// openSides opens connections of both clients with servers of their own sides, as soon as
// both directors are master, and the second client knows.
func (w *workload) openSides(ctx context.Context) error {
	s := w.site
	if err := s.awaitMaster(ctx, second); err != nil {
		return err
	}
	virtual := topology.PairVirtual(s.setting.Family).Addr()
	for side := range 2 {
		conns, err := s.open(ctx, side, sidePort(side), w.plan.EachSide, w.plan.OpenRate)
		w.sides = append(w.sides, conns...)
		if err != nil {
			return fmt.Errorf("open connections on side %d of a partition: %w", side+1, err)
		}
		if len(conns) > 0 && !s.entries.leads(entry{side, virtual}, s.entries.mac[side][topology.ClientDevice]) {
			return fmt.Errorf("side %d of a partition does not reach its own director", side+1)
		}
	}
	return nil
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
	for _, c := range append(w.idle, w.sides...) {
		c.Close()
	}
	w.done.Wait()
	return nil
}

// finish ends the workload and fills in what clients noticed, from the fault to the end.
func (w *workload) finish(t *Trial, fault, end time.Time) error {
	w.pings.stop()
	w.probe.stop()
	t.Pings, t.PingsLost, t.PingsLate = w.pings.since(fault.Add(-justBefore))
	t.OutageMS = ms(time.Duration(t.PingsLost+t.PingsLate) * pingInterval)
	t.LateMS = ms(w.pings.late)
	t.Probes, t.ProbesFailed = w.probe.since(fault)
	gap, since := w.probe.gap(fault.Add(-100*time.Millisecond), end)
	t.GapMS, t.GapAtMS = ms(gap), ms(since.Sub(fault))

	t.Broken = map[string]int{}
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
	t.Long, t.Idle, t.Side = len(w.streams), len(w.idle), len(w.sides)
	deadline := time.Now().Add(connectionPatience)
	for _, s := range w.streams {
		all.Go(func() { note(&t.LongBroken, s.stop(deadline)) })
	}
	begin := time.Now()
	use := func(lost *int, conns []net.Conn) {
		for _, c := range conns {
			if rate := w.plan.OpenRate; rate > 0 {
				time.Sleep(time.Until(begin))
				begin = begin.Add(time.Duration(float64(time.Second) / rate))
			}
			all.Go(func() {
				note(lost, useIdle(c, time.Now().Add(connectionPatience)))
				c.Close()
			})
		}
	}
	use(&t.SideLost, w.sides)
	use(&t.IdleLost, w.idle)
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
	t.FailedBy = failedBy(r)
	t.Reset, t.Timeout = r.Loss.Reset+r.Loss.Refused, r.Loss.Timeout
	return nil
}

// failedBy is how many requests failed of each cause that there was.
func failedBy(r *load.Result) map[string]int {
	all := map[string]int{
		"client": r.Loss.Client.Total(), "refused": r.Loss.Refused, "reset": r.Loss.Reset, "timeout": r.Loss.Timeout,
		"unreachable": r.Loss.Unreachable, "truncated": r.Loss.Truncated, "malformed": r.Loss.Malformed,
		"unfinished": r.Unfinished, "status": r.Replies - r.Status.Success,
	}
	maps.DeleteFunc(all, func(_ string, n int) bool { return n == 0 })
	return all
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
		if logs != "" && (err != nil || !t.Master || t.IdleLost+t.LongBroken+t.SideLost > 0 || isPlanned(t.Fault) && t.Failed > 0 || f.stays && t.Transitions > 0) {
			copied = s.logs(logs)
		}
		err = errors.Join(err, copied, s.reset())
	}()
	if err := s.begin(ctx, v, t.Setting); err != nil {
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
	phase, window := p.phase(t.Block, t.Cell), p.window(f, v)
	w, err := startWorkload(ctx, s, p, lead+phase, lead+phase+window, uint64(t.Block)<<8)
	if err != nil {
		return err
	}
	// The last connections may have taken longer than they should.
	if err := sleep(ctx, max(lead+phase-time.Since(w.began), youngest-time.Since(w.opened))); err != nil {
		return errors.Join(err, w.abandon())
	}
	if err := s.masters.holds(f.holder()); err != nil {
		return errors.Join(err, w.abandon())
	}
	fault := time.Now()
	t.YoungestMS = ms(fault.Sub(w.opened))
	over, err := suffer(ctx, w, f, v, fault.Add(window))
	if err != nil {
		return errors.Join(err, w.abandon())
	}
	end := time.Now()
	if err := t.judge(s, f, fault, over, end); err != nil {
		return errors.Join(err, w.abandon())
	}
	return w.finish(t, fault, end)
}

// judge fills in what tables of the directors and of those around them said; over is when
// the fault itself ended, if it did.
func (t *Trial) judge(s *site, f Fault, fault, over, end time.Time) error {
	changes, err := s.masters.all()
	if err != nil {
		return err
	}
	learned, err := s.entries.all()
	if err != nil {
		return err
	}
	c := judge(changes, fault, end, f.master)
	t.TakeoverMS, t.BothMS, t.Transitions = msOrNever(c.takeover), ms(c.both), c.transitions
	arp := msOrNever(right(learned, s.entries.expected(t.Setting, f.master), over, end))
	t.ARPMS = &arp
	if f.heals {
		only := msOrNever(settled(changes, over, end, f.master))
		t.SettledMS = &only
	}
	t.Master = s.masters.now()[f.master]
	return nil
}

// msOrNever is a time in milliseconds; -1 for one that did not come.
func msOrNever(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return ms(d)
}

// suffer does what the fault is, and waits until the end. It returns when the fault was over
// if it heals, else when it happened.
func suffer(ctx context.Context, w *workload, f Fault, v Variant, end time.Time) (over time.Time, err error) {
	s := w.site
	over = time.Now()
	began := over
	if err := f.inject(ctx, s); err != nil {
		return over, err
	}
	if longer := time.Since(began) - boot; longer > 0 {
		end = end.Add(longer) // the machine took longer than it should
	}
	if f.meanwhile != nil {
		if err := f.meanwhile(ctx, w); err != nil {
			return over, err
		}
	}
	if f.then != nil {
		if err := sleep(ctx, f.after(v)-time.Since(began)); err != nil {
			return over, err
		}
		if f.heals {
			over = time.Now()
		}
		if err := f.then(ctx, s); err != nil {
			return over, err
		}
		if latest := over.Add(healed + settle); f.heals && latest.After(end) {
			end = latest // it lasted longer than it should
		}
	}
	return over, sleep(ctx, time.Until(end))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
