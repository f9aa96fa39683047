// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
)

// Between failures to read the devices.
const lookAgainAfter = 100 * time.Millisecond

// reading is when the devices were read last. The worker has as much time for other things
// before they are read again, as devices can change all the time.
type reading struct{ began, ended time.Duration }

func (r reading) next() time.Duration { return r.ended + min(r.ended-r.began, lookAgainAfter) }

// look has the worker read the devices.
func (l *loop) look() {
	l.lookAt = 0
	if l.replacing != nil && l.replacing.announcing {
		// The next program looks itself, and the end of this one would wait for the worker.
		l.lookAt = now() + lookAgainAfter
		return
	}
	if l.looking {
		l.lookAgain = true
		return
	}
	if t := l.reading.next(); now() < t {
		l.lookAt = t
		return
	}
	l.looking, l.lookAgain = true, false
	l.reading.began = now()
	changes := l.changes
	l.worker.do(func() {
		devices, err := l.links.Devices()
		l.poll.post(func() { l.looked(devices, err, changes) })
	})
}

// looked acts on what has changed. The addresses are those of now unless the worker was asked
// to change them since.
func (l *loop) looked(devices map[string]*host.Device, err error, changes uint64) {
	l.looking = false
	l.reading.ended = now()
	if err != nil {
		if l.lookError != err.Error() {
			l.Log.Error("devices cannot be read; that is tried again", "error", err)
		}
		l.lookError, l.lookAt = err.Error(), now()+lookAgainAfter
		return
	}
	l.lookError = ""
	renumbered := l.renumbered(devices)
	l.devices = devices
	if renumbered {
		l.seek()
	} else {
		l.seekOthers()
	}
	l.openSockets()
	current := changes == l.changes && !l.busy && len(l.toAdd) == 0
	if current {
		l.verify(now())
	}
	l.reviewAll(now())
	if l.lookAgain || !current {
		l.look()
	}
}

// reviewAll tells all machines of what has changed around them, and starts those that waited
// for a socket.
func (l *loop) reviewAll(t time.Duration) {
	if !l.started {
		return
	}
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Initialize && !g.joining() && !l.stopping {
			g.begin(t)
		} else {
			g.review(t)
		}
	}
}
