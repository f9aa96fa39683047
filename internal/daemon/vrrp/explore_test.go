// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// The explorer has two or three nodes with one virtual router each, in steps of a quarter
// of the interval, and visits every state that they can reach with a number of faults. A
// message takes one step. In each step an adversary does one thing, or none; then messages
// arrive, then every node ticks.
const (
	quantum  = 10 * time.Millisecond
	perCycle = 4 // steps in an interval
	interval = perCycle * quantum
	patience = missed * perCycle // steps
	// epoch is the time of every decoded state: only differences matter.
	epoch = 1000 * quantum
)

// kinds are what the adversary can do.
type kinds uint16

const (
	mayLose   kinds = 1 << iota
	mayDelay        // by 1 or 5 steps: behind the next advertisement
	mayFreeze       // the host: messages are lost, and the data plane stands still
	mayPause        // the process: messages wait
	mayKill         // everything on the host; or the process, its lease goes on
	mayShutdown
	mayCut   // one direction of a link
	mayShift // another priority
	mayFail  // a local fault
	mayGiveUp
)

// scenario is a set of runs.
type scenario struct {
	name       string
	priorities []uint8 // with skews of whole steps: multiples of 64
	shift      []uint8 // what priorities can become
	may        kinds
	faults     int
	config     Config // Interval, Priority and Routers are set
	mergeAfter int8   // steps to Merged; 0: never
	// two is how many steps more than one node can serve once messages pass; apart from
	// leases of dead hosts.
	two int8
	// none is how many steps no node may serve once the last fault is over.
	none int8
	// becomes is how often nodes become master after the last fault.
	becomes int8
}

// message is an advertisement on its way.
type message struct {
	from, to int8
	priority uint8
	due      int8 // steps
	kind     int8 // 0: advertisement, 1: Take
}

// xnode is a director.
type xnode struct {
	machine  Machine
	alive    bool
	faulty   bool
	frozen   int8 // steps left in which the host stands still
	paused   int8 // steps left in which the process does
	queue    []message
	lease    time.Duration // also of a dead one
	sync     int8          // steps of synchronization so far
	merge    int8          // steps until Merged; 0: none
	heard    int8          // steps since a backup got an advertisement that it has to follow, at most patience+1
	mustHear int8          // steps for which it must not serve: it stood still
}

// xstate is a state of all.
type xstate struct {
	now      time.Duration
	nodes    []xnode
	messages []message
	cut      uint16 // bit from*3+to
	faults   int8   // left
	two      int8   // monitors: steps in a row
	none     int8
	becomes  int8
}

// choice is what the adversary does.
type choice struct {
	what  kinds
	node  int8
	index int8 // of a message, or the other node
	value uint8
	free  bool // a repair: it costs no fault
}

func (c choice) String() string {
	names := map[kinds]string{
		0: "nothing", mayLose: "lose", mayDelay: "delay", mayFreeze: "freeze", mayPause: "pause", mayKill: "kill",
		mayShutdown: "shut down", mayCut: "cut", mayShift: "priority", mayFail: "fault", mayGiveUp: "give up",
	}
	s := names[c.what]
	if c.free {
		s = map[kinds]string{mayKill: "start", mayCut: "repair", mayFail: "fault gone"}[c.what]
	}
	if c.what == 0 {
		return s
	}
	return fmt.Sprintf("%s node %d, %d, %d", s, c.node, c.index, c.value)
}

// explorer visits states.
type explorer struct {
	scenario
	bases  []Machine // of each node, as made
	bug    *bug
	states *store
	out    Output
	buffer []byte
	// The greatest values seen.
	most struct{ two, none, becomes int8 }
}

// bug breaks a rule at the boundary of a machine, so that none is in its code.
type bug struct {
	name   string
	before func(n *xnode, now time.Duration)
	after  func(n *xnode, now time.Duration)
	drop   func(n *xnode, from netip.Addr, priority uint8) bool
	from   func(n *xnode, from netip.Addr) netip.Addr
	finds  string // what the explorer has to say
	plain  bool   // without the scenario's configuration
	may    kinds  // instead of the scenario's
}

func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

func newExplorer(t testing.TB, s scenario) *explorer {
	e := &explorer{scenario: s, states: newStore()}
	for i, p := range s.priorities {
		c := s.config
		c.Interval, c.Priority = interval, p
		c.Routers = []Router{{Device: "eth0", ID: 51, Source: nodeAddress(i), Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.200/24")}}}
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		e.bases = append(e.bases, *m)
	}
	return e
}

// run visits all states, and returns what is wrong with the nearest bad one.
func (e *explorer) run(limit int) (states int, wrong string) {
	first := xstate{now: epoch, faults: int8(e.faults)}
	for i := range e.bases {
		m := e.bases[i]
		m.memory.Routers = []RouterSnapshot{m.memory.Routers[0]}
		first.nodes = append(first.nodes, xnode{machine: m})
	}
	e.states.add(e.encode(&first), step{})
	for i := uint32(0); int(i) < e.states.len(); i++ { // in order: breadth first
		base := e.decode(e.states.key(i))
		for _, c := range e.choices(&base) {
			s := e.decode(e.states.key(i))
			wrong := e.step(&s, c)
			k, added := e.states.add(e.encode(&s), step{i, c})
			if added && wrong != "" {
				return e.states.len(), wrong + "\n" + e.trace(k)
			}
			if e.states.len() >= limit {
				return e.states.len(), "too many states"
			}
		}
	}
	return e.states.len(), ""
}

// trace is how a state is reached.
func (e *explorer) trace(k uint32) string {
	var lines []string
	for ; k != 0; k = e.states.steps[k].parent {
		s := e.decode(e.states.key(k))
		var b strings.Builder
		fmt.Fprintf(&b, "%-22s", e.states.steps[k].choice)
		for i := range s.nodes {
			n := &s.nodes[i]
			if !n.alive {
				b.WriteString(" | dead")
			} else {
				fmt.Fprintf(&b, " | %v %d", n.machine.State(), n.machine.memory.Priority)
			}
			fmt.Fprintf(&b, " lease %d deadline %d frozen %d paused %d", max(0, (n.lease-s.now)/quantum), max(0, (n.machine.memory.Deadline-s.now)/quantum), n.frozen, n.paused)
		}
		fmt.Fprintf(&b, " | %v two %d none %d\n", s.messages, s.two, s.none)
		lines = append(lines, b.String())
	}
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

// choices are what the adversary can do.
func (e *explorer) choices(s *xstate) []choice {
	list := []choice{{}}
	spend := s.faults > 0
	for i := range s.nodes {
		n, i8 := &s.nodes[i], int8(i)
		if !n.alive {
			list = append(list, choice{what: mayKill, node: i8, free: true})
			continue
		}
		if n.frozen > 0 || n.paused > 0 {
			continue
		}
		if n.faulty {
			list = append(list, choice{what: mayFail, node: i8, free: true})
		}
		if !spend {
			continue
		}
		if e.may&mayKill != 0 {
			list = append(list, choice{what: mayKill, node: i8})
		}
		if e.may&mayShutdown != 0 {
			list = append(list, choice{what: mayShutdown, node: i8})
		}
		for _, d := range []uint8{perCycle, patience + 1} {
			if e.may&mayFreeze != 0 {
				list = append(list, choice{what: mayFreeze, node: i8, value: d})
			}
			if e.may&mayPause != 0 {
				list = append(list, choice{what: mayPause, node: i8, value: d})
			}
		}
		if e.may&mayFail != 0 && !n.faulty {
			list = append(list, choice{what: mayFail, node: i8})
		}
		if e.may&mayShift != 0 {
			for _, p := range e.shift {
				if p != n.machine.memory.Priority {
					list = append(list, choice{what: mayShift, node: i8, value: p})
				}
			}
		}
		if e.may&mayGiveUp != 0 && n.machine.State() == Master {
			for j := range s.nodes {
				if j != i && s.nodes[j].alive && s.nodes[j].machine.State() == Backup {
					for _, d := range []uint8{0, 1, 3} {
						list = append(list, choice{what: mayGiveUp, node: i8, index: int8(j), value: d})
					}
				}
			}
		}
	}
	for i := range s.nodes {
		for j := range s.nodes {
			if i != j && s.cut&(1<<(i*3+j)) != 0 {
				list = append(list, choice{what: mayCut, node: int8(i), index: int8(j), free: true})
			} else if i != j && spend && e.may&mayCut != 0 {
				list = append(list, choice{what: mayCut, node: int8(i), index: int8(j)})
			}
		}
	}
	if spend {
		for i, m := range s.messages {
			if m.due > 0 || m.kind != 0 {
				continue
			}
			if e.may&mayLose != 0 {
				list = append(list, choice{what: mayLose, index: int8(i)})
			}
			if e.may&mayDelay != 0 {
				list = append(list, choice{what: mayDelay, index: int8(i), value: 1}, choice{what: mayDelay, index: int8(i), value: perCycle + 1})
			}
		}
	}
	return list
}

// step is one: the choice, then messages and ticks, then the monitors. Messages' due is
// counted from the present step.
func (e *explorer) step(s *xstate, c choice) (wrong string) {
	// A paused process has its lease, a frozen host stands still and serves nothing.
	if c.what != 0 {
		s.two, s.none, s.becomes = 0, 0, 0
		if !c.free {
			s.faults--
		}
	}
	e.act(s, c)
	due := s.messages
	s.messages = nil
	for _, m := range due {
		if m.due > 0 {
			m.due--
			s.messages = append(s.messages, m)
			continue
		}
		if w := e.deliver(s, m); w != "" {
			return w
		}
	}
	for i := range s.nodes {
		if w := e.tick(s, i); w != "" {
			return w
		}
	}
	wrong = e.watch(s)
	s.now += quantum
	return wrong
}

// act does what the adversary chose.
func (e *explorer) act(s *xstate, c choice) {
	n := &s.nodes[c.node]
	switch c.what {
	case mayLose:
		s.messages = append(s.messages[:c.index:c.index], s.messages[c.index+1:]...)
	case mayDelay:
		s.messages[c.index].due += int8(c.value)
	case mayFreeze:
		n.frozen = int8(c.value)
	case mayPause:
		n.paused = int8(c.value)
	case mayShutdown:
		e.call(s, int(c.node), func(m *Machine, out *Output) { m.Shutdown(s.now, out) })
		e.bury(n)
	case mayKill:
		if !c.free {
			e.bury(n)
			return
		}
		lease := n.lease
		routers := []RouterSnapshot{e.bases[c.node].memory.Routers[0]}
		*n = xnode{machine: e.bases[c.node], alive: true}
		n.machine.memory.Routers = routers
		n.lease = lease
		n.heard = patience + 1
		e.call(s, int(c.node), func(m *Machine, out *Output) { m.Start(s.now, out) })
	case mayCut:
		s.cut ^= 1 << (int(c.node)*3 + int(c.index))
	case mayShift:
		e.call(s, int(c.node), func(m *Machine, out *Output) { m.SetPriority(s.now, c.value, out) })
	case mayFail:
		n.faulty = !n.faulty
		e.call(s, int(c.node), func(m *Machine, out *Output) { m.SetFault(s.now, n.faulty, out) })
	case mayGiveUp:
		e.call(s, int(c.node), func(m *Machine, out *Output) { m.GiveUp(s.now, out) })
		s.messages = append(s.messages, message{from: c.node, to: c.index, due: int8(c.value), kind: 1})
	}
}

// bury leaves nothing of a node but its lease.
func (e *explorer) bury(n *xnode) {
	*n = xnode{machine: n.machine, lease: n.lease}
}

// deliver passes a message to its node.
func (e *explorer) deliver(s *xstate, m message) string {
	n := &s.nodes[m.to]
	if !n.alive || n.frozen > 0 {
		return ""
	}
	if n.paused > 0 {
		n.queue = append(n.queue, m)
		return ""
	}
	if m.kind == 1 || m.priority == 0 {
		n.mustHear = 0 // it heard that the master left
	}
	if m.kind == 1 {
		return e.call(s, int(m.to), func(machine *Machine, out *Output) { machine.Take(s.now, out) })
	}
	from := nodeAddress(int(m.from))
	if e.bug != nil && e.bug.drop != nil && e.bug.drop(n, from, m.priority) {
		return ""
	}
	if e.bug != nil && e.bug.from != nil {
		from = e.bug.from(n, from)
	}
	a := Advertisement{ID: 51, Priority: m.priority, Interval: interval, Addresses: n.machine.advertised[0]}
	wrong := e.call(s, int(m.to), func(machine *Machine, out *Output) { machine.Receive(s.now, 0, from, &a, out) })
	if n.machine.State() == Backup && (m.priority >= n.machine.memory.Priority || e.config.AwaitSync && !n.machine.memory.Synchronized && m.priority > 1) {
		n.heard = 0
	}
	return wrong
}

// tick is a step of a node: its queue, its synchronization, its timer.
func (e *explorer) tick(s *xstate, i int) string {
	n := &s.nodes[i]
	if !n.alive {
		return ""
	}
	n.heard = min(n.heard+1, patience+1)
	n.mustHear = max(0, n.mustHear-1)
	if n.frozen > 0 || n.paused > 0 {
		n.frozen, n.paused = max(0, n.frozen-1), max(0, n.paused-1)
		if n.frozen > 0 || n.paused > 0 {
			return ""
		}
		if s.now-n.machine.memory.Seen > patience*quantum && n.machine.State() >= Backup {
			n.mustHear = patience
		}
		queue := n.queue
		n.queue = nil
		for _, m := range queue {
			if w := e.deliver(s, m); w != "" {
				return w
			}
		}
	}
	if n.merge > 0 {
		if n.merge--; n.merge == 0 {
			if w := e.call(s, i, func(m *Machine, out *Output) { m.Merged(s.now, out) }); w != "" {
				return w
			}
		}
	}
	if e.config.AwaitSync && n.machine.State() == Backup && !n.machine.memory.Synchronized {
		if !e.reachesMaster(s, i) {
			n.sync = 0
		} else if n.sync++; n.sync == 2*perCycle {
			n.sync = 0
			if w := e.call(s, i, func(m *Machine, out *Output) { m.SetSynchronized(s.now, true, out) }); w != "" {
				return w
			}
		}
	}
	return e.call(s, i, func(m *Machine, out *Output) { m.Tick(s.now, out) })
}

// reachesMaster reports whether a node can read a master's table.
func (e *explorer) reachesMaster(s *xstate, i int) bool {
	for j := range s.nodes {
		n := &s.nodes[j]
		if j != i && n.alive && n.frozen == 0 && n.paused == 0 && n.machine.State() == Master && s.cut&(1<<(i*3+j)|1<<(j*3+i)) == 0 {
			return true
		}
	}
	return false
}

// call calls a machine, and does what it says.
func (e *explorer) call(s *xstate, i int, f func(m *Machine, out *Output)) (wrong string) {
	n := &s.nodes[i]
	if e.bug != nil && e.bug.before != nil {
		e.bug.before(n, s.now)
	}
	synchronized := n.machine.memory.Synchronized
	out := &e.out
	out.Reset()
	f(&n.machine, out)
	for _, a := range out.Actions {
		switch a.Kind {
		case ActionLease:
			n.lease = a.Until
		case ActionAdvertise:
			if n.lease <= s.now && a.Advertisement.Priority > 1 { // 1 is a reminder
				wrong = fmt.Sprintf("node %d advertises without a lease", i)
			}
			for j := range s.nodes {
				if j != i && s.cut&(1<<(i*3+j)) == 0 {
					s.messages = append(s.messages, message{from: int8(i), to: int8(j), priority: a.Advertisement.Priority})
				}
			}
		case ActionTake:
			s.becomes++
		case ActionMerge:
			n.merge = e.mergeAfter
		case ActionNotify:
			if a.State == Master && alone(a.Cause) && e.outlives(s, i) {
				wrong = fmt.Sprintf("node %d takes over before a lease ends", i)
			}
			if a.State == Master && alone(a.Cause) && n.heard < patience {
				wrong = fmt.Sprintf("node %d takes over too soon", i)
				if e.config.AwaitSync && !synchronized {
					wrong = fmt.Sprintf("node %d preempts before it is synchronized", i)
				}
			}
		}
	}
	if n.machine.State() != Master {
		n.merge = 0
	}
	if n.machine.State() != Backup {
		n.heard = patience + 1
	}
	if out.Next != 0 && out.Next > s.now+patience*quantum/3 || n.machine.State() >= Backup && out.Next == 0 {
		wrong = fmt.Sprintf("node %d asks for a tick at %v", i, out.Next)
	}
	if e.bug != nil && e.bug.after != nil {
		e.bug.after(n, s.now)
	}
	// Announcements have no effect here.
	n.machine.memory.AnnounceAt, n.machine.memory.AnnounceAfter, n.machine.memory.QuietAt = 0, 0, 0
	n.machine.memory.OtherMaster, n.machine.memory.Announced = false, false
	return wrong
}

// outlives reports whether another node that cannot yield, and is not preempted, still has a
// lease. That takes lost messages.
func (e *explorer) outlives(s *xstate, i int) bool {
	if e.may&(mayLose|mayDelay|mayFreeze|mayCut) != 0 {
		return false
	}
	for j := range s.nodes {
		if n := &s.nodes[j]; e.priorities[j] >= e.priorities[i] && (!n.alive || n.paused > 0) && n.lease > s.now {
			return true
		}
	}
	return false
}

// watch is the monitors.
func (e *explorer) watch(s *xstate) string {
	serving, live, eligible, late, disturbed := 0, 0, 0, false, s.cut != 0
	for i := range s.nodes {
		n := &s.nodes[i]
		serves := n.lease > s.now && n.frozen == 0
		if serves {
			serving++
			if n.alive && n.paused == 0 {
				live++
			}
			if n.mustHear > 0 {
				return fmt.Sprintf("node %d serves after a stall, before it listened", i)
			}
		}
		if !n.alive {
			continue
		}
		if n.frozen > 0 || n.paused > 0 {
			disturbed = true
			continue
		}
		if !n.faulty {
			eligible++
		}
		if (n.machine.State() == Master) != serves {
			return fmt.Sprintf("node %d is %v, and its lease is fresh: %v", i, n.machine.State(), serves)
		}
	}
	for _, m := range s.messages {
		late = late || m.due > 0
	}
	if live < 2 || disturbed || late {
		s.two = 0
	} else if s.two++; s.two > e.two {
		return "two masters for too long"
	}
	if serving > 0 || eligible == 0 || late {
		s.none = 0
	} else if s.none++; s.none > e.none {
		return "no master for too long"
	}
	if s.becomes > e.becomes {
		return "flapping"
	}
	e.most.two, e.most.none, e.most.becomes = max(e.most.two, s.two), max(e.most.none, s.none), max(e.most.becomes, s.becomes)
	return ""
}

// alone reports whether a backup became master by its own clock: nobody resigned.
func alone(c Cause) bool { return c == CauseSilence || c == CausePreempts }
