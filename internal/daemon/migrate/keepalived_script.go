// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"time"
)

// vrrpCheck is a vrrp_script.
type vrrpCheck struct {
	*statement
	order             int // of the block in the file
	command           []string
	user              string
	interval, timeout time.Duration
	timed             *statement // timeout
	rise, fall        int64
	weight            int64
	reverse           bool
	body              []string         // lines of YAML but for the weight; nil: it cannot run
	named             bool             // by a track_script
	used              map[int64]string // names of it that groups track, by weight
}

// vrrpScripts are the keywords of vrrp_script.
var vrrpScripts = blockKind[*vrrpCheck]{name: "vrrp_script", keys: map[string]keyword[*vrrpCheck]{
	"script": func(k *keepalived, c *vrrpCheck, s *statement) { c.command = k.vrrpCommand(s) },
	"user":   func(k *keepalived, c *vrrpCheck, s *statement) { c.user = k.user(s) },
	"interval": func(k *keepalived, c *vrrpCheck, s *statement) {
		if t, ok := k.scriptTime(s); ok {
			c.interval = t
		}
	},
	"timeout": func(k *keepalived, c *vrrpCheck, s *statement) {
		if t, ok := k.scriptTime(s); ok {
			c.timeout, c.timed = t, s
		}
	},
	"rise":      func(k *keepalived, c *vrrpCheck, s *statement) { c.rise = k.scriptCount(s) },
	"fall":      func(k *keepalived, c *vrrpCheck, s *statement) { c.fall = k.scriptCount(s) },
	"weight":    (*keepalived).scriptWeight,
	"init_fail": lost[*vrrpCheck]("not needed: a script fails before its first result"),
}}

// scriptTime is a number of whole seconds, of which 0 is 1 in keepalived.
func (k *keepalived) scriptTime(s *statement) (time.Duration, bool) {
	n, ok := k.numeral(s, 1, wholeSeconds, "left out")
	if ok && n == 0 {
		k.lose(s.place, s.text(), "keepalived takes 1 s for 0: so does this")
		n = 1
	}
	return time.Duration(n) * time.Second, ok
}

// mostResults is the bound of rise and fall in a configuration.
const mostResults = 1000

func (k *keepalived) scriptCount(s *statement) int64 {
	n, ok := k.numeral(s, 1, count, "1")
	switch {
	case !ok:
		return 1
	case n > mostResults:
		k.lose(s.place, s.text(), "at most %d results in a row are counted: %d", mostResults, mostResults)
		return mostResults
	}
	return n
}

// maxTrackWeight bounds what is added to a priority.
const maxTrackWeight = 253

// scriptWeight reads the weight of a script. Keepalived takes one out of its bounds, too; as a
// priority ends at 1 and 254, the bound has the same effect.
func (k *keepalived) scriptWeight(c *vrrpCheck, s *statement) {
	text, ok := k.value(s)
	if !ok {
		return
	}
	n, exact, ok := numeral{low: -maxTrackWeight, high: maxTrackWeight, lenient: true}.read(text)
	switch {
	case !ok:
		taken := int64(int32(n)) // an int in keepalived
		n = min(max(taken, -maxTrackWeight), maxTrackWeight)
		k.lose(s.place, s.text(), "keepalived accepts only -%d to %d, and reads %d: %d, which has the same effect", maxTrackWeight, maxTrackWeight, taken, n)
	case !exact:
		k.lose(s.place, s.text(), "not a number: keepalived reads %d", n)
	}
	c.weight = n
	switch s.word(2) {
	case "":
	case "reverse":
		c.reverse = true
	default:
		k.lose(s.place, s.text(), "%s is not an option of a weight: left out, as keepalived does", s.word(2))
	}
}

// vrrpScript takes in a vrrp_script, which is the n-th statement of the file.
func (k *keepalived) vrrpScript(s *statement, n int) {
	c := &vrrpCheck{statement: s, order: n, interval: time.Second, rise: 1, fall: 1, used: map[int64]string{}}
	vrrpScripts.read(k, c, s.block)
	if s.word(1) == "" {
		k.lose(s.place, s.text(), "has no name: left out")
		return
	}
	if first := k.file.named[s.word(1)]; first != nil {
		k.lose(s.place, s.text(), "%s has this name: left out", first.place)
		return
	}
	k.file.scripts = append(k.file.scripts, c)
	k.file.named[s.word(1)] = c
	if c.command == nil {
		return
	}
	if c.timeout > c.interval {
		k.lose(c.timed.place, c.timed.text(), "longer than the interval of %s, and runs of a script do not overlap: the interval is %s; for one of %s shorten the timeout",
			span(c.interval), span(c.timeout), span(c.interval))
		c.interval = c.timeout
	}
	c.body = []string{"command: " + list(c.command)}
	if c.user != "" {
		c.body = append(c.body, "user: "+quoted(c.user))
	} else if k.file.firstScript == (place{}) {
		k.file.firstScript = s.place
	}
	c.body = append(c.body, "interval: "+span(c.interval))
	if c.timeout > 0 && c.timeout != c.interval {
		c.body = append(c.body, "timeout: "+span(c.timeout))
	}
	if c.rise != 1 {
		c.body = append(c.body, fmt.Sprintf("rise: %d", c.rise))
	}
	if c.fall != 1 {
		c.body = append(c.body, fmt.Sprintf("fall: %d", c.fall))
	}
}

// vrrpCommand is the command of a script, or of a change of state.
func (k *keepalived) vrrpCommand(s *statement) []string {
	_, words := k.runnable(s)
	return k.program(s, words)
}
