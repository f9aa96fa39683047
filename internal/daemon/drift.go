// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/plan"
)

// mostDrift bounds the lines of drift that are kept.
const mostDrift = 100

// setDrift notes how the table differs from what the configuration, the orders and the
// checks say: by what a reload would change.
func (d *Daemon) setDrift(p *plan.Plan) {
	var now []string
	for _, c := range p.Changes {
		if c.Kind == plan.SetHealth || c.Kind == plan.SetDrain || c.Kind == plan.KeepService {
			continue
		}
		if len(now) == mostDrift {
			now = append(now, fmt.Sprintf("and %d more", len(p.Changes)-mostDrift))
			break
		}
		now = append(now, "a reload would "+c.String())
	}
	if slices.Equal(now, d.drift) {
		return
	}
	for _, line := range now {
		if !slices.Contains(d.drift, line) {
			d.note(events.Event{Kind: events.DriftFound, Text: "the table was changed: " + line})
		}
	}
	if len(now) == 0 {
		d.note(events.Event{Kind: events.DriftEnded, Text: "the table is as configured"})
	}
	d.drift = now
}
