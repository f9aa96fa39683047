// SPDX-License-Identifier: Apache-2.0

package daemon

import "time"

// settled is how long a file must not have changed before it is read: editors and
// copies write in pieces.
const settled = 2 * time.Second

// watchFiles reloads when the files have changed and are settled, if the configuration
// asks for that. It polls: a file that another takes the place of has no events.
func (d *Daemon) watchFiles(now time.Time) {
	if !d.core.Config.Daemon.Watch || d.reloads {
		d.unsettled = time.Time{}
		return
	}
	if d.changed(now) {
		d.reloadLater("the changed file")
	}
}

// changed reports whether the files are others than those that were read last, valid or
// not, and settled.
func (d *Daemon) changed(now time.Time) bool {
	current := d.read.Again()
	switch {
	case current.Equal(d.read):
		d.unsettled = time.Time{}
	case d.unsettled.IsZero() || !current.Equal(d.latest):
		d.latest, d.unsettled = current, now
	case now.Sub(d.unsettled) >= settled:
		d.unsettled = time.Time{}
		return true
	}
	return false
}
