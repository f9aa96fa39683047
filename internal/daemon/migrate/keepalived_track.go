// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
)

// watched is what instances and sync groups have in common: what they track, and commands.
type watched struct {
	order   int    // of the block in the file
	own     string // device of an instance
	told    string // the first arguments of its command notify in keepalived
	devices []trackedDevice
	scripts []trackedScript
	notify  map[string]notifying // by keyword
}

type trackedScript struct {
	*statement
	check  *vrrpCheck
	weight int64
}

type notifying struct {
	place
	command []string
}

// watchedBlocks are the blocks of what is tracked.
var watchedBlocks = []string{"track_interface", "track_script", "track_file", "track_process", "track_bfd"}

// notifies are the keywords of commands.
var notifies = []string{"notify", "notify_master", "notify_backup", "notify_fault", "notify_stop"}

// trackInterfaces reads track_interface: alloc_track_if() of vrrp/vrrp_track.c in keepalived.
func (k *keepalived) trackInterfaces(w *watched, s *statement) {
	for _, one := range s.block {
		name := one.words[0]
		weight, ok := k.trackedWeight(one, trackedWeights{})
		switch {
		case !ok:
		case slices.ContainsFunc(w.devices, func(d trackedDevice) bool { return d.name == name }):
			k.lose(one.place, one.text(), "the device is tracked above: left out, as keepalived does")
		case name == w.own:
			k.lose(one.place, one.text(), "the instance's own interface, which it tracks in any case: left out, as keepalived does")
		default:
			w.devices = append(w.devices, trackedDevice{one.place, name, weight})
		}
	}
}

// trackScripts reads track_script: alloc_track_script() of vrrp/vrrp_track.c in keepalived.
// Only scripts above the block are there.
func (k *keepalived) trackScripts(w *watched, s *statement) {
	for _, one := range s.block {
		c := k.file.named[one.words[0]]
		switch {
		case c == nil:
			k.lose(one.place, "track_script "+one.text(), "there is no such script: left out, as keepalived does")
			continue
		case c.order > w.order && c.body != nil:
			k.lose(one.place, "track_script "+one.text(), "the script is below, and keepalived leaves this out: to track it, write the script above")
			continue
		case c.body == nil:
			k.lose(one.place, "track_script "+one.text(), "the script is left out: so is this")
			continue
		case slices.ContainsFunc(w.scripts, func(t trackedScript) bool { return t.check == c }):
			k.lose(one.place, one.text(), "the script is tracked above: left out, as keepalived does")
			continue
		}
		c.named = true
		if weight, ok := k.trackedWeight(one, trackedWeights{weight: c.weight, reverse: c.reverse, script: true}); ok {
			w.scripts = append(w.scripts, trackedScript{one, c, weight})
		}
	}
}

// trackedWeights is the weight of what is tracked if the line has none.
type trackedWeights struct {
	weight  int64
	reverse bool
	script  bool
}

// trackedWeight is the weight of a line such as NAME weight -20. Ok is false if keepalived
// leaves the line out, or nothing here is like it.
func (k *keepalived) trackedWeight(s *statement, without trackedWeights) (weight int64, ok bool) {
	weight, reverse := without.weight, without.reverse
	switch {
	case len(s.words) > 1 && s.words[1] != "weight":
		k.lose(s.place, s.text(), "%s is not an option of it: left out, as keepalived does", s.words[1])
		return 0, false
	case len(s.words) == 2:
		k.lose(s.place, s.text(), "the weight has no number: left out, as keepalived does")
		return 0, false
	case len(s.words) > 2:
		form := numeral{low: -maxTrackWeight - 1, high: maxTrackWeight + 1, lenient: true}
		if n, ok := k.numeral(s, 2, form, fmt.Sprintf("weight %d", weight)); ok {
			weight = min(max(n, -maxTrackWeight), maxTrackWeight)
			if weight != n {
				k.lose(s.place, s.text(), "keepalived takes %d: so does this", weight)
			}
		}
	}
	switch option := s.word(3); {
	case option == "reverse":
		reverse = true
	case option == "noreverse" && without.script:
		reverse = false
	case option != "":
		k.lose(s.place, s.text(), "%s is not an option of a weight: left out, as keepalived does", option)
	}
	if reverse {
		k.lose(s.place, s.text(), "reverse is not supported: left out")
	}
	return weight, !reverse
}

func (k *keepalived) notTracked(_ *watched, s *statement) {
	for _, one := range s.block {
		k.lose(one.place, s.words[0]+" "+one.text(), "not tracked: track a script")
	}
}

// notifyCommand reads a command. Keepalived has the first one of a keyword.
func (k *keepalived) notifyCommand(w *watched, s *statement) {
	if _, twice := w.notify[s.words[0]]; twice {
		k.lose(s.place, s.text(), "there is a command for this above: left out, as keepalived does")
		return
	}
	command := k.vrrpCommand(s)
	if command == nil {
		return
	}
	k.notifyUser(s)
	if w.notify == nil {
		w.notify = map[string]notifying{}
	}
	w.notify[s.words[0]] = notifying{s.place, command}
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
func (k *keepalived) track(c *vrrpCheck, weight int64) string {
	if name, known := c.used[weight]; known {
		return name
	}
	name := c.word(1)
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
	return name
}
