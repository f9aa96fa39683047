// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"time"
)

// Progress is a running total of the counted arrivals, for people to watch.
type Progress struct {
	Elapsed   time.Duration
	Scheduled int // arrivals due so far
	Issued    int
	Replies   int
	Lost      int
	Open      int // connections open now, the warm-up's too
}

// progressEvery is how often Run reports.
const progressEvery = 250 * time.Millisecond

// headStart lets every thread be asleep on its first arrival when it comes.
const headStart = 5 * time.Millisecond

// team is the clients of one run.
type team struct {
	workers []*worker
	shared  *shared
	start   chan time.Time // the beginning, for each; closed without one: go home
	done    chan error
}

// Run carries out a plan. progress, which may be nil, is called from Run's
// goroutine. When ctx is cancelled Run stops at once and returns what was
// counted together with ctx's error; any other error comes without a result.
func Run(ctx context.Context, p Plan, progress func(Progress)) (*Result, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	limit, used, err := RaiseDescriptors()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer reserve(len(p.Clients))()
	t, err := assemble(p)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer context.AfterFunc(ctx, func() { t.shared.stop.Store(true) })()

	began := time.Now()
	if err := t.run(began.Add(headStart), progress); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	r, err := t.result(p, began, limit, used)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return r, ctx.Err()
}

// assemble starts a thread per client and waits until each is ready.
func assemble(p Plan) (*team, error) {
	t := &team{
		workers: make([]*worker, len(p.Clients)),
		shared:  newShared(p),
		start:   make(chan time.Time),
		done:    make(chan error, len(p.Clients)),
	}
	ready := make(chan error, len(p.Clients))
	for i := range p.Clients {
		onThread(func() { t.client(p, i, ready) })
	}
	var failed error
	for range p.Clients {
		if err := <-ready; err != nil {
			failed = err
		}
	}
	if failed != nil {
		close(t.start)
		for _, w := range t.workers {
			if w != nil {
				<-t.done
			}
		}
	}
	return t, failed
}

// client is the life of one client's thread.
func (t *team) client(p Plan, i int, ready chan<- error) {
	err := enterNamespace(p.Clients[i].Namespace)
	if err == nil {
		t.workers[i], err = newWorker(p, i, t.shared)
	}
	if err != nil {
		ready <- fmt.Errorf("client %d: %w", i, err)
		return
	}
	sharpTimers()
	if p.Precedence {
		t.workers[i].precedence = takePrecedence()
	}
	ready <- nil
	base, ok := <-t.start
	if !ok {
		t.workers[i].poller.close()
		t.done <- nil
		return
	}
	if err := t.workers[i].run(base); err != nil {
		t.shared.stop.Store(true)
		t.done <- fmt.Errorf("client %d: %w", i, err)
		return
	}
	t.done <- nil
}

// run lets the clients go and reports until all are back.
func (t *team) run(base time.Time, progress func(Progress)) error {
	for range t.workers {
		t.start <- base
	}
	var tick <-chan time.Time
	if progress != nil {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		tick = ticker.C
		defer func() { progress(t.progress(base)) }()
	}
	var failed error
	for back := 0; back < len(t.workers); {
		select {
		case err := <-t.done:
			back++
			if err != nil {
				failed = err
			}
		case <-tick:
			progress(t.progress(base))
		}
	}
	return failed
}

func (t *team) progress(base time.Time) Progress {
	p := Progress{Elapsed: max(0, time.Since(base))}
	for _, w := range t.workers {
		p.Scheduled += int(w.gauge.scheduled.Load())
		p.Issued += int(w.gauge.issued.Load())
		p.Replies += int(w.gauge.replies.Load())
		p.Lost += int(w.gauge.lost.Load())
		p.Open += int(w.gauge.open.Load())
	}
	return p
}
