// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"imbang/internal/daemon/check"
)

// Defaults of checks.
const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = 3 * time.Second
	defaultRise     = 2
	defaultFall     = 3
	defaultJitter   = 0.1
)

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })

const wantName = "want a name of letters, digits, dots, - and _, such as web1"

// checks enters the checks of one file.
func (c *checker) checks(docs map[string]checkDoc) {
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		at := "checks." + name
		if !nameForm().MatchString(name) {
			c.refuse("checks", "%q: %s", name, wantName)
			c.named[name] = &Check{Name: name}
			continue
		}
		if _, twice := c.named[name]; twice {
			c.refuse(at, "there is a check of this name in another file: rename one")
			continue
		}
		d := docs[name]
		c.named[name] = c.check(at, name, &d)
	}
}

func (c *checker) check(at, name string, d *checkDoc) *Check {
	out := &Check{Name: name}
	if d.Script != nil && d.Script.User == "" {
		d.Script.User = c.config.Daemon.ScriptUser
	}
	kinds, specs := d.Given()
	if len(kinds) != 1 {
		c.refuse(at, "has %s: want exactly one of %s", orNone(kinds), strings.Join(check.KindNames(), ", "))
	} else {
		out.Kind, out.Spec = kinds[0], specs[0]
		for _, p := range out.Spec.Problems() {
			c.refuse(strings.TrimSuffix(at+"."+out.Kind+"."+p.Key, "."), "%s", p.Text)
		}
	}
	if c.tree.Has(at + ".port") {
		out.Port = uint16(c.between(at+".port", d.Port, 1, 65535))
	}
	c.steering(at, d, out)
	out.Timing = c.timing(at, d)
	switch c.oneOf(at+".initial", d.Initial, "last-known", "up", "down") {
	case "last-known":
		out.LastKnown, out.Initial = true, check.Up
	case "up":
		out.Initial = check.Up
	case "down":
		out.Initial = check.Down
	}
	return out
}

// connecting are the kinds of checks that connect to a server, and so can be steered.
var connecting = []string{"tcp", "tls", "http"}

func (c *checker) steering(at string, d *checkDoc, out *Check) {
	can := slices.Contains(connecting, out.Kind)
	out.Steered = can && (d.Steered == nil || *d.Steered)
	if !can && out.Kind != "" {
		for key, given := range map[string]bool{"steered": d.Steered != nil, "virtual": d.Virtual != ""} {
			if given {
				c.refuse(at+"."+key, "is for checks of kind %s", strings.Join(connecting, ", "))
			}
		}
		return
	}
	if d.Virtual == "" {
		return
	}
	a, err := netip.ParseAddr(d.Virtual)
	switch {
	case err != nil || !a.IsValid() || a.Zone() != "":
		c.refuse(at+".virtual", "%q: want an address, such as 10.20.0.1", d.Virtual)
	case !out.Steered:
		c.refuse(at+".virtual", "the check is not steered: remove this, or steered: false")
	}
	out.Virtual = a.Unmap()
}

func (c *checker) timing(at string, d *checkDoc) check.Timing {
	t := check.Timing{Rise: defaultRise, Fall: defaultFall, Jitter: defaultJitter}
	t.Interval = c.duration(at+".interval", d.Interval, 10*time.Millisecond, defaultInterval)
	t.Fast = c.duration(at+".fast_interval", d.FastInterval, 10*time.Millisecond, t.Interval)
	t.Timeout = c.duration(at+".timeout", d.Timeout, time.Millisecond, min(defaultTimeout, t.Interval))
	t.Spread = c.duration(at+".start_spread", d.StartSpread, 0, t.Interval)
	if t.Fast > t.Interval {
		c.refuse(at+".fast_interval", "%s is longer than the interval of %s: want a shorter time", d.FastInterval, t.Interval)
	}
	if t.Timeout > t.Interval {
		c.refuse(at+".timeout", "%s is longer than the interval of %s: checks of a server do not overlap", d.Timeout, t.Interval)
	}
	if c.tree.Has(at + ".rise") {
		t.Rise = c.between(at+".rise", d.Rise, 1, 1000)
	}
	if c.tree.Has(at + ".fall") {
		t.Fall = c.between(at+".fall", d.Fall, 1, 1000)
	}
	if d.Jitter != nil {
		t.Jitter = c.share(at+".jitter", *d.Jitter, defaultJitter)
	}
	return t
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "no kind"
	}
	return strings.Join(words, " and ")
}

// checksNamed looks checks up.
func (c *checker) checksNamed(path string, names []string) (list []*Check) {
	for i, name := range names {
		if c.full() {
			return list
		}
		at := path + indexed(i)
		ch, ok := c.named[name]
		switch {
		case !ok && len(c.named) == 0:
			c.refuse(at, "there is no check %q: write it under checks", name)
		case !ok:
			c.refuse(at, "there is no check %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(c.named)), ", "))
		case slices.Index(names, name) != i:
			c.refuse(at, "%q is given twice: remove one", name)
		default:
			list = append(list, ch)
		}
	}
	return list
}
