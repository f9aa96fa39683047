// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"imbang/internal/daemon/api"
)

// What differs between two directors is found, and what cannot be known is not.
func TestExaminePair(t *testing.T) {
	same, different := true, false
	healthyPair := func() *Pair {
		return &Pair{Pair: api.Pair{Peer: "10.0.0.2:8791", Reached: true, Same: &same, Clock: &api.Clock{AheadMS: 900, WithinMS: 1}}}
	}
	for name, c := range map[string]struct {
		change func(p *Pair)
		want   string
	}{
		"fine":          {func(*Pair) {}, "ok       pair: the director 10.0.0.2:8791 is reached, and has the same configuration\n"},
		"not known yet": {func(p *Pair) { p.Same, p.Clock = nil, nil }, ""},
		"no answer":     {func(p *Pair) { p.Error = "timeout" }, "warning  pair: the daemon does not answer: timeout: systemctl status imbang\n"},
		"not reached": {func(p *Pair) { p.Reached, p.Same = false, &different },
			"warning  pair: the director 10.0.0.2:8791 is not reached: whether its configuration is the same is not known: imbang peer status\n"},
		"configuration": {func(p *Pair) { p.Same, p.Different = &different, 3 },
			"warning  pair: the configuration of the director 10.0.0.2:8791 differs in 3 keys: after a takeover it serves otherwise: imbang peer diff\n"},
		"clock ahead": {func(p *Pair) { p.Clock.AheadMS = 1500 },
			"warning  pair: the clock of the director 10.0.0.2:8791 is 1.5 s ahead of this one's: times in their logs cannot be compared, and the later one of two orders is not known: timedatectl set-ntp true (on both directors)\n"},
		"clock behind":          {func(p *Pair) { p.Clock.AheadMS = -61_000 }, "is 61.0 s behind this one's"},
		"not measured so close": {func(p *Pair) { p.Clock.AheadMS, p.Clock.WithinMS = 1500, 600 }, "ok       pair: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := healthyPair()
			c.change(p)
			var all []Finding
			examinePair(report{"pair", &all}, p)
			if got := lines(all); !strings.Contains(got, c.want) || c.want == "" && got != "" || len(all) > 1 {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	f := healthy()
	f.Pair = healthyPair()
	if all := Examine(f); !Fine(all) || !strings.Contains(lines(all), "ok       pair: ") {
		t.Errorf("%s", lines(all))
	}
}
