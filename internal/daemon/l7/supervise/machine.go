// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

// Phase is where HAProxy is in its life.
type Phase string

// Phases.
const (
	Waiting   Phase = "waiting"   // to be started
	Starting  Phase = "starting"  // until a worker accepts commands
	Running   Phase = "running"   //
	Reloading Phase = "reloading" // running, and reading a configuration
	Stopping  Phase = "stopping"  //
	Ended     Phase = "ended"     //
)

// Action is what the machine has the loop do.
type Action string

// Actions.
const (
	Launch Action = "launch" // HAProxy, with the configuration that is wanted
	Reload Action = "reload" // the configuration that is wanted
	Accept Action = "accept" // the configuration that was tried
	Refuse Action = "refuse" // it, and go back to the one before
	Finish Action = "finish" // let HAProxy end when its connections have
	Quit   Action = "quit"   // end it with its connections
	Kill   Action = "kill"   //
	End    Action = "end"    // the supervisor
)

// Times.
const (
	// steady is how long HAProxy has to run until its next end counts as the first one.
	steady = 10 * time.Second
	// After an end, HAProxy is back within 1 s, also if that is repeated: a start takes less
	// than half of it.
	firstRestart, lastRestart = 50 * time.Millisecond, 500 * time.Millisecond
	// A start that fails will fail again unless something changes.
	firstRetry, lastRetry = 100 * time.Millisecond, 10 * time.Second
	startTime             = 30 * time.Second // until it accepts commands
	quitTime              = 2 * time.Second  // from SIGTERM to SIGKILL
)

// machine decides. Its methods take the time, and return what is to be done in that order.
type machine struct {
	phase Phase
	grace time.Duration // of a stop
	since time.Time     // of the phase Running
	next  time.Time     // of Tick; zero: none
	ends  int           // one after the other, without a steady time between
	fails int           // starts
	again bool          // a reload was asked for meanwhile
	half  bool          // a try was begun by an earlier supervisor
	quits bool          // SIGTERM was sent
}

func (m *machine) enter(p Phase, next time.Time) { m.phase, m.next = p, next }

// start begins; found: with a HAProxy that runs, and unfinished: in the middle of a try.
func (m *machine) start(now time.Time, found, unfinished bool) []Action {
	if !found {
		return m.launch(now)
	}
	m.half = unfinished
	m.enter(Starting, now.Add(startTime))
	return nil
}

func (m *machine) launch(now time.Time) []Action {
	m.again, m.half = false, false
	m.enter(Starting, now.Add(startTime))
	return []Action{Launch}
}

// ready: a worker accepts commands.
func (m *machine) ready(now time.Time) []Action {
	if m.phase != Starting {
		return nil
	}
	m.fails, m.since = 0, now
	if m.half {
		// Whether HAProxy has loaded it is not known.
		m.half = false
		m.enter(Running, time.Time{})
		return m.ask(now)
	}
	return m.run(now, Accept)
}

// run is the end of a start or reload.
func (m *machine) run(now time.Time, outcome Action) []Action {
	m.enter(Running, time.Time{})
	if m.again {
		return append([]Action{outcome}, m.ask(now)...)
	}
	return []Action{outcome}
}

// ask for a reload, which is a start while HAProxy does not run.
func (m *machine) ask(now time.Time) []Action {
	switch m.phase {
	case Waiting:
		return m.launch(now)
	case Running:
		m.again = false
		m.enter(Reloading, time.Time{})
		return []Action{Reload}
	case Starting, Reloading:
		m.again = true
	}
	return nil
}

// reloaded: the reload that was begun is over.
func (m *machine) reloaded(now time.Time, accepted bool) []Action {
	if m.phase != Reloading {
		return nil
	}
	if accepted {
		return m.run(now, Accept)
	}
	return m.run(now, Refuse)
}

// ended: HAProxy has.
func (m *machine) ended(now time.Time) []Action {
	switch m.phase {
	case Stopping:
		m.enter(Ended, time.Time{})
		return []Action{End}
	case Starting:
		m.enter(Waiting, now.Add(backOff(firstRetry, lastRetry, m.fails)))
		m.fails++
		return []Action{Refuse}
	case Running, Reloading:
		if now.Sub(m.since) >= steady {
			m.ends = 0
		}
		refuse := m.phase == Reloading
		m.enter(Waiting, now.Add(backOff(firstRestart, lastRestart, m.ends)))
		m.ends++
		if refuse {
			return []Action{Refuse}
		}
	}
	return nil
}

// backOff doubles a time with each failure before.
func backOff(first, last time.Duration, before int) time.Duration {
	return min(first<<min(before, 20), last)
}

// stop ends HAProxy, and then the supervisor.
func (m *machine) stop(now time.Time) []Action {
	switch m.phase {
	case Waiting:
		m.enter(Ended, time.Time{})
		return []Action{End}
	case Stopping, Ended:
		return nil
	}
	m.enter(Stopping, now.Add(m.grace))
	return []Action{Finish}
}

// tick: it is the time that next says, or later.
func (m *machine) tick(now time.Time) []Action {
	if m.next.IsZero() || now.Before(m.next) {
		return nil
	}
	m.next = time.Time{}
	switch {
	case m.phase == Waiting:
		return m.launch(now)
	case m.phase == Starting:
		return []Action{Kill} // and ended follows
	case m.phase == Stopping && !m.quits:
		m.quits, m.next = true, now.Add(quitTime)
		return []Action{Quit}
	case m.phase == Stopping:
		return []Action{Kill}
	}
	return nil
}

// settled is true if nothing is under way that another program of the supervisor could not
// go on with.
func (m *machine) settled() bool { return m.phase == Running || m.phase == Waiting }
