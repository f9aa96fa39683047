// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"
	"strings"
	"time"
)

// A restore reads lines ahead, parses them and makes their edits in batches. No
// batch is open while it reads, looks up names or prints, so that others can
// edit the table meanwhile. A batch has at most batchMost edits, and starts none
// after batchTime but those of a service's first wholeServers; to write them takes
// about as long as to make them.
const (
	// batchEnough is after how many edits, and timeEnough after how long, a
	// batch ends where a line adds a service: a restore that is killed then
	// leaves services with all of their servers.
	batchEnough  = 2000
	batchMost    = 4000
	timeEnough   = 10 * time.Millisecond
	batchTime    = 25 * time.Millisecond
	wholeServers = 250
)

// now is the clock of batches; tests stop it.
var now = time.Now

// restore runs every line of standard input as a command line.
//
// A line the table refuses, or whose options cannot be read, is reported and
// the next one runs; a line that is wrong in what it says ends the restore,
// and nothing already done is undone. The status is that of the last line, as
// ipvsadm has it.
//
// Where no more lines are ready within inputGrace, those that were read are run.
func (s *session) restore() *exit {
	inner := *s
	inner.restoring = true
	in := input{from: s.stdin}
	var steps []step
	var last *exit
	for more := true; more; {
		var lines []string
		var idle bool
		lines, idle, more = in.next()
		steps = inner.understand(steps, lines)
		for len(steps) > batchMost || len(steps) > 0 && (idle || !more || steps[len(steps)-1].ends()) {
			done, err := inner.run(steps)
			steps = steps[len(done):]
			for _, last = range done {
				if last != nil && last.stop {
					break
				}
				s.report(last)
			}
			if err != nil {
				return &exit{status: 255, text: explain(verbRestore, err), stop: true}
			}
			if last != nil && last.stop {
				return last
			}
		}
	}
	if in.err != nil {
		return &exit{status: 255, text: fmt.Sprintf("ipvsadm: standard input: %v", in.err), stop: true}
	}
	if last != nil {
		return &exit{status: last.status} // already reported
	}
	return nil
}

// step is a line understood: a command, or why there is none.
type step struct {
	command *command
	stop    *exit
}

// edits reports whether a step changes the table and prints nothing.
func (s step) edits() bool { return s.stop == nil && s.command.verb.edits() }

// ends reports whether no line after it is looked at, whatever the table says.
func (s step) ends() bool { return s.stop != nil && s.stop.stop }

// understand parses lines, up to one that ends the restore.
func (s *session) understand(steps []step, lines []string) []step {
	for _, line := range lines {
		args := splitLine(line)
		if len(args) == 0 {
			continue
		}
		c, stop := parse(args, s.names)
		steps = append(steps, step{c, stop})
		if steps[len(steps)-1].ends() {
			break
		}
	}
	return steps
}

// run runs the first of steps, and if it is an edit as many as one batch may
// have. It returns the exit of each.
func (s *session) run(steps []step) ([]*exit, error) {
	switch first := steps[0]; {
	case first.edits():
		return s.batch(steps)
	case first.stop != nil:
		return []*exit{first.stop}, nil
	default:
		return []*exit{s.execute(first.command)}, nil
	}
}

// batch makes the edits that steps begin with, as many as one batch may have,
// and returns the exit of each.
func (s *session) batch(steps []step) (exits []*exit, err error) {
	err = s.table.Batch(func(t Table) error {
		began, service := now(), 0
		for i, step := range steps {
			if !step.edits() || i >= batchMost {
				break
			}
			if i > 0 {
				took := now().Sub(began)
				enough := i >= batchEnough || took > timeEnough
				if took > batchTime && i-service > wholeServers || enough && step.command.verb == verbAddService {
					break
				}
			}
			if step.command.verb == verbAddService {
				service = i
			}
			var end *exit
			if err := edit(t, step.command); err != nil {
				end = &exit{status: 255, text: explain(step.command.verb, err)}
			}
			exits = append(exits, end)
		}
		return nil
	})
	return exits, err
}

// splitLine cuts a line of a restore into words. There are no quotes and no
// comments; the word "ipvsadm" is dropped wherever it stands, so that the
// output of a script of ipvsadm commands can be restored.
func splitLine(line string) (args []string) {
	for _, word := range strings.FieldsFunc(line, isBlank) {
		word, _, _ = strings.Cut(word, "\x00") // C strings end here
		if word != "ipvsadm" {
			args = append(args, word)
		}
	}
	return args
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }
