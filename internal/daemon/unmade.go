// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"time"
)

// alarmChecks is raised while this machine cannot make checks, for lack of files,
// memory, ports, processes or rights: the state of servers is then outdated.
const alarmChecks = "checks"

// unmadeAlarm is how long the alarm lasts after the last check that could not be made.
const unmadeAlarm = time.Minute

// unmade takes note of a check that could not be made. The alarm's text is about the
// first one: a lack of resources affects all of them, and each text is an event.
func (d *Daemon) unmade(r result) {
	d.unmadeAt = r.at
	if _, raised := d.alarms[alarmChecks]; raised {
		return
	}
	_, server := d.core.Name(r.id.ServerID)
	d.raise(alarmChecks, fmt.Sprintf("check %s of %s could not be made: %s", r.id.Check, server, r.Detail))
}

// keepUnmade ends the alarm in time.
func (d *Daemon) keepUnmade(now time.Time) {
	if now.Sub(d.unmadeAt) >= unmadeAlarm {
		d.clear(alarmChecks)
	}
}
