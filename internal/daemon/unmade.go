// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"time"

	"imbang/internal/daemon/core"
)

// alarmChecks is raised while this machine cannot make checks, for lack of files,
// memory, ports, processes or rights: the state of servers is then outdated.
const alarmChecks = "checks"

// unmadeAlarm is how long the alarm lasts after the last check that could not be made.
const unmadeAlarm = time.Minute

// unmadeText is how long the alarm keeps its text: each text is an event, and a lack of resources
// affects all checks, now one, then another.
const unmadeText = 10 * time.Second

// lack is what the alarm is about.
type lack struct {
	last  time.Time    // when a check could not be made
	named core.CheckID // by the alarm's text
	since time.Time    // of that text
	seen  time.Time    // when the named check could not be made last; zero: it could be since
}

// noteUnmade takes note of a check that could not be made. The alarm names one until that can be made,
// or, if it is no longer made, for a minute.
func (d *Daemon) noteUnmade(r result) {
	u := &d.unmade
	if !r.Inconclusive {
		if r.id == u.named {
			u.seen = time.Time{}
		}
		return
	}
	u.last = r.at
	if r.id == u.named {
		u.seen = r.at
	}
	old, raised := d.alarms[alarmChecks]
	if raised && (r.at.Sub(u.since) < unmadeText || r.id != u.named && r.at.Sub(u.seen) < unmadeAlarm) {
		return
	}
	_, server := d.core.Name(r.id.ServerID)
	text := fmt.Sprintf("check %s of %s could not be made: %s", r.id.Check, server, r.Detail)
	if !raised || text != old.Text {
		u.named, u.since, u.seen = r.id, r.at, r.at
		d.raise(alarmChecks, text)
	}
}

// keepUnmade ends the alarm in time.
func (d *Daemon) keepUnmade(now time.Time) {
	if now.Sub(d.unmade.last) >= unmadeAlarm {
		d.clear(alarmChecks)
	}
}
