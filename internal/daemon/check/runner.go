// SPDX-License-Identifier: Apache-2.0

package check

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Job is a check that is made again and again.
type Job struct {
	Checker Checker
	Target  Target
	Timing  Timing
	// State is what is known when the job begins: a server that was down before a
	// restart rises at the fast interval. The runner goes on from there by itself.
	State State
}

// Runner carries jobs out, each under an id. One goroutine waits for the next start,
// and each check that is under way has one; a job that waits has none. Times are those
// of the monotonic clock, so setting the wall clock changes nothing.
type Runner[ID comparable] struct {
	report func(ID, Result, time.Time)
	limit  chan struct{} // checks under way
	wake   chan struct{}
	end    context.CancelFunc
	under  sync.WaitGroup

	mu     sync.Mutex
	jobs   map[ID]*running[ID]
	queue  queue[ID]
	full   bool                    // a job is due, and as many as may be are under way
	delays *hdrhistogram.Histogram // of starts [us]
}

// running is a job with its place in the queue.
type running[ID comparable] struct {
	id ID
	Job
	state State
	due   time.Time
	early time.Duration // by how much it may begin before, with others
	index int           // in the queue; -1: under way
	gone  bool          // removed while under way
}

// mostUnderWay bounds the checks that are under way at once: each has a socket.
const mostUnderWay = 8192

// NewRunner begins with no job. Results are reported by many goroutines at once, with
// the time at which the check ended.
func NewRunner[ID comparable](report func(ID, Result, time.Time)) *Runner[ID] {
	ctx, end := context.WithCancel(context.Background())
	r := &Runner[ID]{
		report: report, limit: make(chan struct{}, mostUnderWay), wake: make(chan struct{}, 1), end: end,
		jobs: map[ID]*running[ID]{}, delays: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3),
	}
	r.under.Add(1)
	go r.loop(ctx)
	return r
}

// Stop ends the checks under way and waits for them.
func (r *Runner[ID]) Stop() {
	r.end()
	r.under.Wait()
}

// Set makes jobs the ones that there are. One that was there before keeps its time and
// its state, unless its interval changed; a new one begins at a random time within its spread.
func (r *Runner[ID]) Set(jobs map[ID]Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for id, old := range r.jobs {
		if _, stays := jobs[id]; !stays {
			r.remove(old)
		}
	}
	for id, job := range jobs {
		old := r.jobs[id]
		if old == nil {
			j := &running[ID]{id: id, Job: job, state: job.State, due: now.Add(within(job.Timing.Spread))}
			r.jobs[id] = j
			heap.Push(&r.queue, j)
			continue
		}
		moved := old.Timing.Interval != job.Timing.Interval
		old.Job = job
		if moved && old.index >= 0 {
			if next := now.Add(within(job.Timing.Interval)); next.Before(old.due) {
				old.due = next
				heap.Fix(&r.queue, old.index)
			}
		}
	}
	r.rouse()
}

func (r *Runner[ID]) remove(j *running[ID]) {
	delete(r.jobs, j.id)
	j.gone = true
	if j.index >= 0 {
		heap.Remove(&r.queue, j.index)
	}
}

// reserve is by how much a check is due before its interval has passed: with the time
// that it takes to start it and to act on its result, the interval is not exceeded, and
// a dead server is found within Interval * Fall + Timeout. Thus 1 % of the servers at most
// begin at once, because wake-ups are shared.
func reserve(interval time.Duration) time.Duration { return min(interval/100, 100*time.Millisecond) }

// within is a random time from 0 to d.
func within(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

func (r *Runner[ID]) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// loop starts jobs when they are due.
func (r *Runner[ID]) loop(ctx context.Context) {
	defer r.under.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(r.startDue(ctx))
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// startDue starts what is due, and returns the time until the next job is.
func (r *Runner[ID]) startDue(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > 0 {
		j := r.queue[0]
		// What is due soon begins with what is due now: to wake up costs as much as a check.
		if wait := time.Until(j.due); wait > j.early {
			return wait
		}
		select {
		case r.limit <- struct{}{}:
		default:
			r.full = true // a check that ends wakes the loop
			return time.Hour
		}
		heap.Pop(&r.queue)
		r.under.Add(1)
		go r.run(ctx, j, j.Job)
	}
	return time.Hour
}

// run carries one check out, and puts the job back into the queue.
func (r *Runner[ID]) run(ctx context.Context, j *running[ID], job Job) {
	defer r.under.Done()
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, job.Timing.Timeout)
	result := job.Checker.Check(limited, job.Target)
	cancel()
	<-r.limit
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if r.again(j, start, result, now) {
		r.report(j.id, result, now)
	}
}

// again queues a job after a check; false if it was removed meanwhile.
func (r *Runner[ID]) again(j *running[ID], start time.Time, result Result, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		r.full = false
		r.rouse()
	}
	_ = r.delays.RecordValue(int64(max(start.Sub(j.due), time.Microsecond) / time.Microsecond))
	if j.gone {
		return false
	}
	j.state, _ = j.Timing.Next(j.state, result, now)
	// From one start to the next, so that a slow server is not checked less often.
	wait := j.Timing.Wait(j.state)
	j.early = reserve(wait)
	j.due = start.Add(wait - j.early - within(time.Duration(float64(wait)*j.Timing.Jitter)))
	if j.due.Before(now) {
		j.due = now
	}
	heap.Push(&r.queue, j)
	if j.index == 0 { // else the loop waits for another one
		r.rouse()
	}
	return true
}

// Delay is by how much starts of checks were late.
type Delay struct {
	Checks   int64
	P50, P99 time.Duration
	Max      time.Duration
}

// Delay is that of all checks since the runner began.
func (r *Runner[ID]) Delay() Delay {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := func(q float64) time.Duration { return time.Duration(r.delays.ValueAtQuantile(q)) * time.Microsecond }
	return Delay{r.delays.TotalCount(), at(50), at(99), at(100)}
}

// queue is a heap of jobs by the time they are due.
type queue[ID comparable] []*running[ID]

func (q queue[ID]) Len() int           { return len(q) }
func (q queue[ID]) Less(a, b int) bool { return q[a].due.Before(q[b].due) }
func (q queue[ID]) Swap(a, b int) {
	q[a], q[b] = q[b], q[a]
	q[a].index, q[b].index = a, b
}

// Push is heap.Interface's.
func (q *queue[ID]) Push(x any) {
	j := x.(*running[ID])
	j.index = len(*q)
	*q = append(*q, j)
}

// Pop is heap.Interface's.
func (q *queue[ID]) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	j.index = -1
	return j
}
