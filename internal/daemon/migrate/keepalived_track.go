// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// vrrpCheck is a vrrp_script.
type vrrpCheck struct {
	*statement
	body   []string // lines of YAML but for the weight; nil: it cannot run
	weight int64
	named  bool             // by a track_script
	used   map[int64]string // names of it that groups track, by weight
}

// vrrpScript takes in a vrrp_script.
func (k *keepalived) vrrpScript(s *statement) {
	c := &vrrpCheck{statement: s, used: map[int64]string{}}
	interval, timeout := time.Second, time.Duration(0)
	rise, fall := int64(1), int64(1)
	var command []string
	user, usable := "", true
	for _, one := range k.leaves(s.block) {
		switch one.words[0] {
		case "script":
			command = k.vrrpCommand(one)
		case "interval", "timeout":
			t, ok := k.time(one)
			switch {
			case !ok:
			case t < shortest:
				k.lose(one.place, one.text(), "want 10 ms or more: left out")
			case one.is("interval"):
				interval = t
			default:
				timeout = t
			}
		case "rise", "fall":
			if n, ok := k.number(one, 1, 1000); ok && one.is("rise") {
				rise = n
			} else if ok {
				fall = n
			}
		case "weight":
			c.weight, usable = k.weight(one, 1)
		case "user":
			user = k.user(one)
		case "init_fail":
			k.lose(one.place, one.text(), "not needed: a script fails before its first result")
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	if k.file.script(s.word(1)) != nil || s.word(1) == "" {
		k.lose(s.place, s.text(), "has no name, or that of a script before: left out")
		return
	}
	k.file.scripts = append(k.file.scripts, c)
	if command == nil || !usable {
		return
	}
	c.body = []string{"command: " + list(command)}
	if user != "" {
		c.body = append(c.body, "user: "+quoted(user))
	} else if k.file.firstScript == (place{}) {
		k.file.firstScript = s.place
	}
	c.body = append(c.body, "interval: "+span(interval))
	if timeout > interval {
		k.lose(s.place, "timeout of "+span(timeout), "longer than the interval of %s, and runs of a script do not overlap: shortened to that", span(interval))
	} else if timeout > 0 && timeout != interval {
		c.body = append(c.body, "timeout: "+span(timeout))
	}
	if rise != 1 {
		c.body = append(c.body, fmt.Sprintf("rise: %d", rise))
	}
	if fall != 1 {
		c.body = append(c.body, fmt.Sprintf("fall: %d", fall))
	}
}

// weight is that of words such as NAME weight -20, behind the i-th; 0 if there is none, and
// false if there is nothing like it here.
func (k *keepalived) weight(s *statement, i int) (int64, bool) {
	text := s.word(i)
	if slices.Contains(s.words[min(i, len(s.words)):], "reverse") {
		k.lose(s.place, s.text(), "reverse is not supported: left out")
		return 0, false
	}
	n, ok := k.number(&statement{place: s.place, words: []string{s.words[0], text}}, -253, 253)
	return n, ok
}

// vrrpCommand is the command of a script, which is looked for in the directories of programs
// if it has no directory, as keepalived does.
func (k *keepalived) vrrpCommand(s *statement) []string {
	line, words, err := scriptWords(s)
	switch {
	case err != nil:
		k.lose(s.place, s.text(), "%v: left out", err)
		return nil
	case len(words) == 0 || words[0] == "" || strings.Contains(words[0], "/") && words[0][0] != '/':
		k.lose(s.place, s.text(), "want the absolute path of a program; forms of a shell need [/bin/bash, -c, ...]: left out")
		return nil
	case words[0][0] != '/':
		words = append([]string{"/usr/bin/env"}, words...)
	}
	if s.is("script") {
		k.oneWord(s, line)
	}
	return words
}

// watched is what instances and sync groups have in common: what they track, and commands.
type watched struct {
	devices []trackedDevice
	scripts []trackedScript
	notify  map[string]notifying // by keyword
}

type trackedScript struct {
	*statement
	weight int64
	own    bool // it says a weight
}

type notifying struct {
	place
	command []string
}

// notifies are the keywords of commands.
var notifies = []string{"notify", "notify_master", "notify_backup", "notify_fault", "notify_stop"}

// watch takes in a line, and reports whether it is of those.
func (k *keepalived) watch(w *watched, s *statement) bool {
	switch {
	case s.is("track_interface"):
		for _, one := range s.block {
			weight, ok := int64(0), true
			if len(one.words) > 1 {
				weight, ok = k.weight(one, 2)
			}
			twice := slices.ContainsFunc(w.devices, func(d trackedDevice) bool { return d.name == one.words[0] })
			if ok && !twice {
				w.devices = append(w.devices, trackedDevice{one.place, one.words[0], weight})
			}
		}
	case s.is("track_script"):
		for _, one := range s.block {
			t := trackedScript{statement: one}
			if len(one.words) > 1 {
				if t.weight, t.own = k.weight(one, 2); !t.own {
					continue
				}
			}
			w.scripts = append(w.scripts, t)
		}
	case s.is("track_file", "track_process", "track_bfd"):
		for _, one := range s.block {
			k.lose(one.place, s.words[0]+" "+one.text(), "not tracked: track a script")
		}
	case s.is(notifies...):
		if command := k.vrrpCommand(s); command != nil {
			k.notifyUser(s)
			if w.notify == nil {
				w.notify = map[string]notifying{}
			}
			w.notify[s.words[0]] = notifying{s.place, command}
		}
	default:
		return false
	}
	return true
}

func (k *keepalived) notifyUser(s *statement) {
	line, err := escapedWords(s.raw)
	switch {
	case err == nil && len(line) > 2 && line[2] == "root", len(line) == 2 && k.scriptUser == "root":
	case err == nil && len(line) > 2:
		k.lose(s.place, s.text(), "runs as root: use a command such as setpriv for another user")
	case k.file.firstNotify == (place{}):
		k.file.firstNotify = s.place
	}
}

// track is the name of a script with a weight, for a group.
func (k *keepalived) track(t trackedScript, weightless bool) (name string, ok bool) {
	c := k.file.script(t.words[0])
	if c != nil {
		c.named = true
	}
	if c == nil || c.body == nil {
		k.lose(t.place, "track_script "+t.text(), "there is no such script, or it is left out: so is this")
		return "", false
	}
	weight := c.weight
	if t.own {
		weight = t.weight
	}
	if weightless && weight != 0 {
		// Without its weight it would put the group in fault, on all directors at once.
		k.lose(t.place, "track_script "+t.text(), "keepalived does not use a script with a weight in a member of a sync group: left out")
		return "", false
	}
	if name, known := c.used[weight]; known {
		return name, true
	}
	name = t.words[0]
	if weight != c.weight {
		name += fmt.Sprintf("-weight%d", weight)
	}
	name = newName(name, func(n string) bool {
		return slices.ContainsFunc(k.Result.scripts, func(o vrrpScript) bool { return o.name == n })
	})
	c.used[weight] = name
	body := slices.Clone(c.body)
	if weight != 0 {
		body = append(body, fmt.Sprintf("weight: %d", weight))
	}
	k.Result.scripts = append(k.Result.scripts, vrrpScript{name, c.place, body})
	return name, true
}
