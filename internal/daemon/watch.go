// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"slices"
	"time"
)

// settled is how long a file must not have changed before it is read: editors and
// copies write in pieces.
const settled = 2 * time.Second

// stamp is what is compared of the configuration's files.
type stamp struct {
	size    int64
	changed time.Time
}

func stamps(files []string) (all []stamp) {
	for _, f := range files {
		var s stamp
		if info, err := os.Stat(f); err == nil {
			s = stamp{info.Size(), info.ModTime()}
		}
		all = append(all, s)
	}
	return all
}

// watchFiles reloads when the files have changed and are settled, if the configuration
// asks for that. It polls: a file that another takes the place of has no events.
func (d *Daemon) watchFiles(now time.Time) {
	if !d.core.Config.Daemon.Watch {
		d.watched = nil
		return
	}
	current := stamps(d.core.Config.Files)
	switch {
	case d.watched == nil:
		d.watched = current
	case slices.Equal(current, d.watched):
		d.unsettled = time.Time{}
	case d.unsettled.IsZero() || !slices.Equal(current, d.latest):
		d.latest, d.unsettled = current, now
	case now.Sub(d.unsettled) >= settled:
		d.watched, d.unsettled = current, time.Time{}
		_, _ = d.reload(false, "the changed file") // it has been noted
		d.watched = stamps(d.core.Config.Files)
	}
}
