// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"slices"
	"testing"
	"time"
)

// step is a call at a time after the one before, and what it has to return.
type step struct {
	after time.Duration
	what  string
	want  []Action
	phase Phase
}

func TestMachine(t *testing.T) {
	const none = time.Duration(0)
	for name, steps := range map[string][]step{
		"started, reloaded, stopped": {
			{none, "start", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running}, {none, "ask", []Action{Reload}, Reloading},
			{none, "accepted", []Action{Accept}, Running}, {none, "stop", []Action{Finish}, Stopping}, {none, "ended", []Action{End}, Ended},
		},
		"found": {
			{none, "found", nil, Starting}, {none, "ready", []Action{Accept}, Running},
		},
		"found in the middle of a try": {
			{none, "unfinished", nil, Starting}, {none, "ready", []Action{Reload}, Reloading}, {none, "refused", []Action{Refuse}, Running},
		},
		"found in the middle of a try, and ended": {
			{none, "unfinished", nil, Starting}, {none, "ended", []Action{Refuse}, Waiting}, {firstRetry, "tick", []Action{Launch}, Starting},
			{none, "ready", []Action{Accept}, Running},
		},
		"a reload that is asked for during another follows it": {
			{none, "start", []Action{Launch}, Starting}, {none, "ask", nil, Starting}, {none, "ready", []Action{Accept, Reload}, Reloading},
			{none, "ask", nil, Reloading}, {none, "refused", []Action{Refuse, Reload}, Reloading}, {none, "accepted", []Action{Accept}, Running},
		},
		"restarts within 1 s however often": {
			{none, "start", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {firstRestart, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {firstRestart, "tick", nil, Waiting}, {firstRestart, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {200 * time.Millisecond, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {400 * time.Millisecond, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {lastRestart, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{none, "ended", nil, Waiting}, {lastRestart, "tick", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running},
			{steady, "ended", nil, Waiting}, {firstRestart, "tick", []Action{Launch}, Starting},
		},
		"a start that fails is repeated ever later, and at once when asked for": {
			{none, "start", []Action{Launch}, Starting}, {none, "ended", []Action{Refuse}, Waiting}, {firstRetry, "tick", []Action{Launch}, Starting},
			{none, "ended", []Action{Refuse}, Waiting}, {firstRetry, "tick", nil, Waiting}, {none, "ask", []Action{Launch}, Starting},
		},
		"ended by a reload": {
			{none, "start", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running}, {none, "ask", []Action{Reload}, Reloading},
			{none, "ended", []Action{Refuse}, Waiting}, {none, "accepted", nil, Waiting}, {firstRestart, "tick", []Action{Launch}, Starting},
		},
		"a start without end is killed": {
			{none, "start", []Action{Launch}, Starting}, {startTime - 1, "tick", nil, Starting}, {1, "tick", []Action{Kill}, Starting},
			{none, "ended", []Action{Refuse}, Waiting},
		},
		"a stop without end": {
			{none, "start", []Action{Launch}, Starting}, {none, "ready", []Action{Accept}, Running}, {none, "stop", []Action{Finish}, Stopping},
			{none, "stop", nil, Stopping}, {none, "ask", nil, Stopping}, {time.Minute, "tick", []Action{Quit}, Stopping},
			{quitTime, "tick", []Action{Kill}, Stopping}, {none, "ended", []Action{End}, Ended},
		},
		"stopped while it waits": {
			{none, "start", []Action{Launch}, Starting}, {none, "ended", []Action{Refuse}, Waiting}, {none, "stop", []Action{End}, Ended},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := machine{grace: time.Minute}, time.Unix(1000, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				var got []Action
				switch s.what {
				case "start":
					got = m.start(now, false, false)
				case "found":
					got = m.start(now, true, false)
				case "unfinished":
					got = m.start(now, true, true)
				case "ready":
					got = m.ready(now)
				case "ask":
					got = m.ask(now)
				case "accepted", "refused":
					got = m.reloaded(now, s.what == "accepted")
				case "ended":
					got = m.ended(now)
				case "stop":
					got = m.stop(now)
				case "tick":
					got = m.tick(now)
				}
				if !slices.Equal(got, s.want) || m.phase != s.phase {
					t.Fatalf("step %d, %s: %v in phase %s; want %v in %s", i, s.what, got, m.phase, s.want, s.phase)
				}
			}
		})
	}
}
