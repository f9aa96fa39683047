// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
)

// Limits of the control socket. Only root can connect.
const (
	controlClients = 16 // at once
	controlRoom    = 256
	controlSend    = 2 * time.Second
)

// firstMessage is how long a client may say nothing at first: the daemon reports what it knows
// within seconds, and commands at once. Tests change it.
var firstMessage = 30 * time.Second

// facts are those that the daemon reported last.
type facts struct {
	control.Facts
	At time.Duration // 0: none were
}

// fresh reports whether they are to be used.
func (f *facts) fresh(t time.Duration) bool { return f.At != 0 && t < f.At+control.FactsHold }

// controlled is what the loop has of its clients.
type controlled struct {
	clients map[*controlClient]bool
	facts   facts
	awaited uint64 // the number of the last Event.Await
	merges  uint64 // that were requested
}

// controlClient is a connection. Events that it does not read in time end it.
type controlClient struct {
	conn net.Conn
	out  chan control.Event
	once sync.Once
	busy // as it said
}

func (c *controlClient) end() { c.once.Do(func() { c.conn.Close() }) }

// serveControl answers clients until the function that it returns is called.
func (l *loop) serveControl() (func(), error) {
	path := control.Socket(l.Dir)
	_ = os.Remove(path) // of a process that was killed: this one has the lock
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	go acceptClients(listener, controlClients, func(conn net.Conn) {
		l.converse(&controlClient{conn: conn, out: make(chan control.Event, controlRoom)})
	})
	return func() {
		listener.Close()
		for c := range l.clients {
			c.end()
		}
	}, nil
}

// converse reads messages, and has a goroutine write events, until the connection ends.
func (l *loop) converse(c *controlClient) {
	defer c.end()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		out := json.NewEncoder(c.conn)
		for {
			select {
			case <-ended:
				return
			case e := <-c.out:
				_ = c.conn.SetWriteDeadline(time.Now().Add(controlSend))
				if out.Encode(e) != nil {
					c.end()
					return
				}
			}
		}
	}()
	l.poll.post(func() { l.welcome(c) })
	defer l.poll.post(func() { delete(l.clients, c) })
	in := bufio.NewScanner(c.conn)
	in.Buffer(nil, control.MaxLine)
	_ = c.conn.SetReadDeadline(time.Now().Add(firstMessage))
	for in.Scan() {
		_ = c.conn.SetReadDeadline(time.Time{})
		var m control.Message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			l.Log.Warn("a message to the control socket is not valid", "error", err)
			return
		}
		l.poll.post(func() { l.told(c, &m) })
	}
}

// welcome begins a connection.
func (l *loop) welcome(c *controlClient) {
	l.clients[c] = true
	c.send(control.Event{Await: l.awaited})
	for _, g := range l.groups {
		c.send(control.Event{State: g.stateEvent(g.machine.State(), g.cause)})
		if g.merge != nil {
			c.send(control.Event{Merge: g.merge})
		}
	}
}

// send never waits.
func (c *controlClient) send(e control.Event) {
	select {
	case c.out <- e:
	default:
		c.end()
	}
}

func (l *loop) tell(e control.Event) {
	for c := range l.clients {
		c.send(e)
	}
}

// told is a message.
func (l *loop) told(c *controlClient, m *control.Message) {
	switch {
	case m.Facts != nil:
		l.learn(facts{*m.Facts, now()})
	case m.Merged != nil:
		for _, g := range l.groups {
			if g.merge != nil && g.merge.Group == m.Merged.Group && g.merge.Number == m.Merged.Number {
				g.call(func(machine *vrrp.Machine, out *vrrp.Output) { machine.Merged(now(), out) })
			}
		}
	case m.GiveUp != nil:
		c.send(control.Event{Reply: l.giveUp(m.GiveUp.Names)})
	case m.Reclaim != nil:
		c.send(control.Event{Reply: l.reclaim(m.Reclaim.Names)})
	case m.Busy:
		c.busy = busy{until: now() + control.BusyHold}
		l.announceBusy(now())
	}
}

// learn takes in facts of the daemon.
func (l *loop) learn(f facts) {
	before := l.facts
	if f.YieldUndecided {
		f.Yield, f.YieldReason = before.Yield, before.YieldReason
	}
	l.facts = f
	if before.Yield != f.Yield {
		if f.Yield {
			l.Log.Warn("another director sees more servers: groups have the lowest priority", "reason", f.YieldReason)
		} else {
			l.Log.Info("no other director sees more servers any more")
		}
		for _, g := range l.groups {
			g.review(now())
		}
	}
	l.synchronize()
}

// synchronize tells the machines whether the connection table is the master's.
func (l *loop) synchronize() {
	for _, g := range l.groups {
		if is := g.synchronized(); is != g.saidSynchronized && g.machine.State() != vrrp.Initialize {
			g.saidSynchronized = is
			g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.SetSynchronized(now(), is, out) })
		}
	}
}

// synchronized reports whether the connection table is the master's, as far as that counts. It
// does not of a master that should not be one and whose table cannot be received, as one that
// has no data plane: nobody would replace it.
func (g *group) synchronized() bool {
	return !g.setup.AwaitSync || g.facts.fresh(now()) &&
		(g.facts.Synchronized >= g.awaited || g.facts.Apart && g.heardPriority == vrrp.PriorityLowest)
}

// forget notes that the machine does not count as synchronized any more, and why: from now
// on the other director's table has to be received anew.
func (g *group) forget() {
	g.loop.awaited++
	g.awaited, g.saidSynchronized = g.loop.awaited, false
	g.tell(control.Event{Await: g.awaited})
	g.synchronize()
}

// expires is when facts cease to be used; 0: they do not, or have.
func (l *loop) expires(t time.Duration) time.Duration {
	if !l.facts.fresh(t) {
		return 0
	}
	return l.facts.At + control.FactsHold
}

func (g *group) stateEvent(s vrrp.State, c vrrp.Cause) *control.State {
	return &control.State{Group: g.setup.Name, State: s.String(), Cause: c.String(), Priority: g.effective}
}

// entered tells clients of a new state.
func (g *group) entered(a *vrrp.Action) {
	if a.State != vrrp.Master {
		g.merge = nil
	}
	if a.State != vrrp.Backup {
		g.moving = 0 // nobody took over, or a fault came
	}
	g.tell(control.Event{State: g.stateEvent(a.State, a.Cause)})
}

// wantMerge asks for the connections of this director to be told to a better master.
func (g *group) wantMerge(a *vrrp.Action) {
	g.loop.merges++
	g.merge = &control.Merge{Group: g.setup.Name, Number: g.loop.merges, Peer: a.Peer.String()}
	g.Log.Warn("a better master is there: it gets the connections before this one yields", "group", g.setup.Name, "from", a.Peer, "within", g.setup.Merge)
	g.tell(control.Event{Merge: g.merge})
}

// hear notes an advertisement that was accepted.
func (g *group) hear(t time.Duration, router int, from netip.Addr, a *vrrp.Advertisement) {
	if from == g.sources[router] {
		return
	}
	if a.Priority == vrrp.PriorityResign {
		if g.setup.Pair && g.machine.State() == vrrp.Backup && g.machine.Snapshot().Resigned {
			// In this round, but when resignations by other routers have been read.
			g.poll.post(g.takeOnly)
		}
		return
	}
	if a.Priority <= vrrp.PriorityReminder {
		return
	}
	g.heardAt, g.heardInterval, g.heardPriority = t, a.Interval, a.Priority
	if g.heard[router] != from {
		g.heard[router] = from
		g.seek()
	}
	g.succeeded(router, from)
	if g.moving != 0 && g.machine.State() == vrrp.Backup {
		took := now() - g.moving
		g.moving = 0
		g.Log.Info("planned move", "group", g.setup.Name, "to", from, "took", took)
		g.tell(control.Event{Moved: &control.Moved{Group: g.setup.Name, To: from.String(), MS: milliseconds(took)}})
	}
}

// takeOnly takes over from the one other director that there is, which resigned.
func (g *group) takeOnly() {
	if g.machine.State() == vrrp.Backup && g.machine.Snapshot().Resigned {
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now(), out) })
	}
}

// named are groups by name, or all.
func (l *loop) named(names []string) (all []*group, err error) {
	var unknown []string
	for _, name := range names {
		at := slices.IndexFunc(l.groups, func(g *group) bool { return g.setup.Name == name })
		if at < 0 {
			unknown = append(unknown, name)
			continue
		}
		all = append(all, l.groups[at])
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("there is no group %s (imbang vrrp status lists them)", strings.Join(unknown, ", "))
	}
	if len(names) == 0 {
		all = l.groups
	}
	return all, nil
}

// giveUp has groups move to another director.
func (l *loop) giveUp(names []string) *control.Reply {
	r := &control.Reply{Groups: []string{}}
	groups, err := l.named(names)
	for _, g := range groups {
		if g.moving != 0 { // that was requested already: this client waits for the same move
			r.Groups = append(r.Groups, g.setup.Name)
			continue
		}
		given := false
		g.moving = now() // before the machine: the successor may be fast
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { given = m.GiveUp(now(), out) })
		if !given {
			g.moving = 0
			continue
		}
		r.Groups = append(r.Groups, g.setup.Name)
	}
	if err == nil && len(r.Groups) == 0 {
		err = errors.New("this director is not master: run the command on the one that is (imbang vrrp status)")
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// reclaim has groups that were given up preempt again.
func (l *loop) reclaim(names []string) *control.Reply {
	r := &control.Reply{Groups: []string{}}
	groups, err := l.named(names)
	for _, g := range groups {
		if g.machine.Snapshot().GaveUp {
			g.machine.Reclaim()
			g.Log.Info("the group may preempt again", "group", g.setup.Name)
			r.Groups = append(r.Groups, g.setup.Name)
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// recall goes on with what an earlier program of the process knew.
func (l *loop) recall(before *handover) {
	if before.Groups == nil {
		l.awaited = 1
		return
	}
	// An earlier version of the program did not number requests: number 0 asks for nothing.
	l.facts, l.awaited, l.merges = before.Facts, max(1, before.Awaited), before.Merges
	l.slots, l.guarded = before.Slots, before.Guarded
	for _, g := range l.groups {
		if s, has := before.Groups[g.setup.Name]; has {
			m := before.Memory[g.setup.Name]
			g.awaited, g.saidSynchronized = max(1, m.Awaited), s.Synchronized
			if g.machine.Merging() {
				g.merge = m.Merge
			}
		}
	}
}
