// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// probePatience is how long one probe waits: so long at most does it wait for the next
// SYN, which Linux sends after a second.
const probePatience = 900 * time.Millisecond

// prober opens a connection at a constant rate, each of which sends a byte, awaits it back,
// and closes.
type prober struct {
	dial func(timeout time.Duration) (net.Conn, error)
	end  chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	success []time.Time // when answers came
	started []time.Time
	failed  []time.Time // when those started that had no answer
}

func startProbe(every time.Duration, dial func(timeout time.Duration) (net.Conn, error)) *prober {
	p := &prober{dial: dial, end: make(chan struct{})}
	p.done.Go(func() {
		begin := time.Now()
		for n := 0; ; n++ {
			select {
			case <-p.end:
				return
			case <-time.After(time.Until(begin.Add(time.Duration(n) * every))):
				p.done.Go(p.once)
			}
		}
	})
	return p
}

func (p *prober) once() {
	began := time.Now()
	ok := p.ask(began.Add(probePatience))
	at := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, began)
	if ok {
		p.success = append(p.success, at)
	} else {
		p.failed = append(p.failed, began)
	}
}

func (p *prober) ask(deadline time.Time) bool {
	c, err := p.dial(time.Until(deadline))
	if err != nil {
		return false
	}
	defer c.Close()
	one := []byte{'?'}
	if c.SetDeadline(deadline) != nil {
		return false
	}
	if _, err := c.Write(one); err != nil {
		return false
	}
	_, err = io.ReadFull(c, one)
	return err == nil
}

// stop opens no more, and waits for those that are open.
func (p *prober) stop() {
	close(p.end)
	p.done.Wait()
}

// gap is the longest time without an answer, of answers from begin to end, and when it began.
func (p *prober) gap(begin, end time.Time) (longest time.Duration, since time.Time) {
	p.mu.Lock()
	times := slices.Clone(p.success)
	p.mu.Unlock()
	return longestGap(times, begin, end)
}

func longestGap(times []time.Time, begin, end time.Time) (longest time.Duration, since time.Time) {
	slices.SortFunc(times, time.Time.Compare)
	last := begin
	for _, at := range append(times, end) {
		if at.Before(begin) || at.After(end) {
			continue
		}
		if d := at.Sub(last); d > longest {
			longest, since = d, last
		}
		last = at
	}
	return longest, since
}

// since is how many probes were started from a time on, and how many of them had no answer.
func (p *prober) since(begin time.Time) (started, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := func(times []time.Time) (n int) {
		for _, at := range times {
			if !at.Before(begin) {
				n++
			}
		}
		return n
	}
	return count(p.started), count(p.failed)
}
