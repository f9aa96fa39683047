// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"math/rand/v2"
	"time"

	"imbang/internal/director/testrun"
	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/rng"
)

const noServer = -1

// conn is a connection that is open.
type conn struct {
	client      end
	virtual     uint32
	destination int32
	server      int32
	began       int64   // [ns]
	started     int64   // being served; before that, notYet
	work        float64 // [ns] at speed 1
	counted     bool
	gone        bool // its client has given up
	free        bool
}

const notYet = -1

// world is one run of one scheduler: clients, servers and the data plane
// between them.
type world struct {
	c     *Config
	plane *plane
	queue queue
	now   int64

	servers  []server
	conns    []conn
	free     []int32 // places in conns
	ports    []uint16
	arrivals *arrivals.Schedule
	works    *rand.Rand
	whom     *popularity // clients
	where    *popularity // destinations

	left    int // connections that are still to come
	opened  int
	begin   int64 // of what is counted [ns]
	end     int64 // of arrivals
	look    int64 // between two looks at the loads [ns]
	tally   tally
	advance func(int)
}

// streams of random numbers. Each has its own, and so have arrivals, so that
// all schedulers meet the same connections in a repeat.
const (
	streamWork = iota + 1
	streamClients
	streamDestinations
)

func newWorld(c *Config, p *plane, rate float64, seed uint64, advance func(int)) *world {
	stream := func(n uint64) *rand.Rand { return rng.Stream(seed, n) }
	w := &world{
		c: c, plane: p, left: c.Connections, advance: advance,
		servers: make([]server, len(c.Servers)),
		ports:   make([]uint16, c.Clients),
		works:   stream(streamWork),
		whom:    newPopularity(c.Clients, c.ClientZipf, stream(streamClients)),
		where:   newPopularity(c.Destinations, c.DestinationZipf, stream(streamDestinations)),
	}
	for i := range w.servers {
		w.servers[i].speed = c.Servers[i].Speed
		if c.Cache > 0 {
			w.servers[i].cache = newCache(c.Cache)
		}
	}
	spec := arrivals.Spec{Pattern: c.Arrivals, Rate: rate, Seed: seed, Connections: c.Connections}
	w.arrivals = arrivals.NewSchedule(spec)
	w.look = max(int64(float64(spec.End())*(1-c.Warmup)/samples), int64(time.Microsecond))
	w.tally = newTally(len(c.Servers))
	w.queue.plan(int64(testrun.Tick), tick, 0)
	w.planArrival()
	return w
}

// planArrival plans the next connection to come.
func (w *world) planArrival() { w.queue.plan(w.arrivals.Next(), arrival, 0) }

// run goes on until the last connection is over.
func (w *world) run(ctx context.Context) error {
	for events := 0; w.left > 0 || w.busy(); events++ {
		if events%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := w.queue.take()
		w.now = e.at
		if err := w.plane.setTime(w.now); err != nil {
			return err
		}
		if err := w.happen(e); err != nil {
			return err
		}
	}
	return nil
}

// busy reports whether connections are open.
func (w *world) busy() bool { return len(w.free) < len(w.conns) }

func (w *world) happen(e event) error {
	switch e.kind {
	case arrival:
		return w.arrive()
	case done:
		return w.done(e.conn)
	case impatience:
		return w.impatience(e)
	case tick:
		w.queue.plan(w.now+int64(testrun.Tick), tick, 0)
		return w.plane.v.Sweep()
	case sample:
		return w.sample()
	}
	return nil
}

// arrive opens a connection.
func (w *world) arrive() error {
	if err := w.open(); err != nil {
		return err
	}
	if w.left--; w.left > 0 {
		w.planArrival()
	} else {
		w.end = w.now
	}
	w.advance(1)
	return nil
}

// samples is about how often the loads are looked at in a run.
const samples = 500

func (w *world) open() error {
	counted := w.opened >= int(w.c.Warmup*float64(w.c.Connections))
	w.opened++
	if counted && w.tally.Connections == 0 {
		w.begin = w.now
		w.queue.plan(w.now, sample, 0)
	}
	id := w.newConn()
	c := &w.conns[id]
	client, destination := w.whom.draw(), w.where.draw()
	*c = conn{
		client: end{number(clientNet.Addr()) + 1 + uint32(client), 1024 + w.ports[client]%(1<<16-1024)}, virtual: virtualAddr(destination),
		destination: int32(destination), began: w.now, started: notYet, counted: counted,
		work: w.c.Distribution.Draw(w.works) * float64(w.c.Service),
	}
	w.ports[client]++
	w.tally.arrived(counted)
	var err error
	if c.server, err = w.plane.open(c); err != nil {
		return err
	}
	if c.server == noServer {
		w.tally.lost(c, &w.tally.Loss.Director)
		w.forget(id)
		return nil
	}
	s := &w.servers[c.server]
	if !s.room(w.c.Concurrency, w.c.Backlog) {
		w.tally.lost(c, &w.tally.Loss.Refused)
		err := w.plane.refuse(c)
		w.forget(id)
		return err
	}
	if err := w.plane.accept(c); err != nil {
		return err
	}
	if w.c.Patience > 0 {
		w.queue.plan(w.now+int64(w.c.Patience), impatience, id)
	}
	if s.busy < w.c.Concurrency {
		w.serve(id)
	} else {
		s.waiting.push(id)
	}
	return nil
}

func (w *world) newConn() int32 {
	if n := len(w.free); n > 0 {
		id := w.free[n-1]
		w.free = w.free[:n-1]
		return id
	}
	w.conns = append(w.conns, conn{})
	return int32(len(w.conns) - 1)
}

func (w *world) forget(id int32) {
	w.conns[id].free = true
	w.free = append(w.free, id)
}

// serve begins to serve a connection.
func (w *world) serve(id int32) {
	c := &w.conns[id]
	s := &w.servers[c.server]
	s.busy++
	c.started = w.now
	takes := c.work / s.speed
	if s.cache != nil {
		hit := s.cache.use(int(c.destination))
		w.tally.looked(c, hit)
		if hit {
			takes *= w.c.HitShare
		}
	}
	w.queue.plan(w.now+int64(takes), done, id)
}

// done ends a connection that was served, and begins the next.
func (w *world) done(id int32) error {
	c := &w.conns[id]
	s := &w.servers[c.server]
	s.busy--
	s.work += w.within(c.started)
	var err error
	if c.gone {
		err = w.plane.closeAbandoned(c)
	} else {
		err = w.plane.close(c)
		w.tally.served(c, w.now)
	}
	if c.counted {
		s.served++
	}
	w.forget(id)
	for err == nil && s.busy < w.c.Concurrency {
		next, ok := s.waiting.pop()
		if !ok {
			break
		}
		if !w.conns[next].gone {
			w.serve(next)
			continue
		}
		s.waiting.gone--
		w.forget(next)
	}
	return err
}

// within is how much of the time from then until now counts: between the end
// of the warm-up and the last arrival.
func (w *world) within(then int64) int64 {
	if w.tally.Connections == 0 {
		return 0
	}
	until := w.now
	if w.left == 0 {
		until = min(until, w.end)
	}
	return max(0, until-max(then, w.begin))
}

// impatience is the time at which a client gives up, if the connection is
// still its. A server that has begun serves on, without a client.
func (w *world) impatience(e event) error {
	c := &w.conns[e.conn]
	if c.free || c.gone || c.began != e.at-int64(w.c.Patience) {
		return nil
	}
	c.gone = true
	w.tally.lost(c, &w.tally.Loss.GaveUp)
	if err := w.plane.abandon(c); err != nil || c.started != notYet {
		return err
	}
	w.servers[c.server].waiting.gone++
	return w.plane.closeAbandoned(c)
}

// sample looks at the loads while connections come.
func (w *world) sample() error {
	if w.left == 0 {
		return nil
	}
	if err := w.tally.look(w); err != nil {
		return err
	}
	w.queue.plan(w.now+w.look, sample, 0)
	return nil
}
