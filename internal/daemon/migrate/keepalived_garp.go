// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// garp is how addresses are announced. What is not set is keepalived's default.
type garp struct {
	repeat  int64         // 0: not set
	again   time.Duration // 0: not set
	refresh time.Duration // 0: none
}

// Forms of numbers: seconds that keepalived multiplies to microseconds, and counts.
var (
	wholeSeconds = numeral{high: math.MaxUint32 / 1_000_000, lenient: true}
	unsigned     = numeral{high: math.MaxUint32, lenient: true}
	count        = numeral{low: 1, high: math.MaxInt32, lenient: true}
)

// The bounds of announcements in a configuration.
const (
	mostAnnouncements  = 100
	rarestAnnouncement = 365 * 24 * time.Hour
)

func (k *keepalived) garpDelay(g *garp, s *statement) {
	n, ok := k.numeral(s, 1, wholeSeconds, "left out")
	if !ok {
		return
	}
	g.again = time.Duration(n) * time.Second
	if n == 0 {
		k.lose(s.place, s.text(), "announcements are always repeated once: after 5 s")
	}
}

func (k *keepalived) garpRepeat(g *garp, s *statement) {
	n, ok := k.numeral(s, 1, unsigned, "left out")
	switch {
	case !ok:
		return
	case n == 0:
		k.lose(s.place, s.text(), "keepalived sends one: so does this")
		n = 1
	case n > mostAnnouncements:
		k.lose(s.place, s.text(), "at most %d announcements are sent", mostAnnouncements)
		n = mostAnnouncements
	}
	g.repeat = n
}

func (k *keepalived) garpRefresh(g *garp, s *statement) {
	n, ok := k.numeral(s, 1, unsigned, "none are sent again")
	g.refresh = time.Duration(n) * time.Second
	switch {
	case !ok || n == 0:
		k.lose(s.place, s.text(), "addresses are announced again every minute: want 1 s or more for another interval")
	case g.refresh > rarestAnnouncement:
		k.lose(s.place, s.text(), "addresses are announced again every 365 days at least")
		g.refresh = rarestAnnouncement
	}
}

func (k *keepalived) garpRefreshRepeat(_ *garp, s *statement) {
	if n, ok := k.numeral(s, 1, unsigned, "left out"); ok && n != 1 {
		k.lose(s.place, s.text(), "one announcement for each address is sent every announce_every")
	}
}

// minGarp reads vrrp_min_garp, which leaves what is set before.
func (k *keepalived) minGarp(g *garp, s *statement) {
	if g.repeat != 0 && g.repeat != 5 {
		k.lose(s.place, s.text(), "the number of announcements above it stays, as with keepalived")
		return
	}
	g.repeat = 1
	k.lose(s.place, s.text(), "one announcement; it is repeated once, after 5 s")
}

func (g garp) keys() (keys []string) {
	if g.repeat != 0 && g.repeat != 5 {
		keys = append(keys, fmt.Sprintf("announcements: %d", g.repeat))
	}
	if g.again != 0 && g.again != 5*time.Second {
		keys = append(keys, "announce_again: "+span(g.again))
	}
	if g.refresh != 0 && g.refresh != time.Minute {
		keys = append(keys, "announce_every: "+span(g.refresh))
	}
	return keys
}

func (g garp) text() string {
	if keys := g.keys(); keys != nil {
		return strings.Join(keys, ", ")
	}
	return "the defaults"
}
