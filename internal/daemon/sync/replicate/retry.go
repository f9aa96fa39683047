// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"time"

	"imbang/internal/daemon/sync/own"
	"imbang/internal/model"
)

const (
	// retryEvery is how often all entries that wait are tried again if the table has changed
	// otherwise than by a service or server that was added.
	retryEvery = 10 * time.Second
	// overflowEvery is how often the whole table is requested because entries found no room
	// to wait.
	overflowEvery = time.Minute
)

// pair is a service, with the zero server, or a server of it.
type pair struct {
	service model.ServiceKey
	server  netip.AddrPort
}

// retries says when entries that wait are tried again.
type retries struct {
	known    map[pair]struct{} // services and servers, at the last look
	all      time.Duration     // all were tried
	changed  bool              // the table has, since then
	overflow time.Duration     // the whole table was requested
}

// noteServices compares services with those of the last look, and has all that waits tried again if
// there are new ones: at once, as it is what a table that is restored needs.
func (r *Replica) noteServices(now time.Duration, services []own.Service) {
	t := &r.retries
	known, added := map[pair]struct{}{}, false
	add := func(p pair) {
		known[p] = struct{}{}
		if _, ok := t.known[p]; !ok {
			added = true
		}
	}
	for _, s := range services {
		add(pair{service: s.Key})
		for i := range s.Servers {
			add(pair{s.Key, s.Servers[i].AddrPort()})
		}
	}
	t.known, t.changed = known, true
	if added {
		r.retryAll(now)
		r.requestOverflow(now)
	}
}

func (r *Replica) retryAll(now time.Duration) {
	r.retries.all, r.retries.changed = now, false
	r.waiting.retryAll()
}

// requestOverflow requests the whole table if entries found no room to wait.
func (r *Replica) requestOverflow(now time.Duration) {
	if r.waiting.overflow > 0 {
		r.retries.overflow = now
		r.receiver.RequestBulk(now, &r.out)
	}
}

// retry tries some of the entries again that wait, and reports whether there are more to
// try. looks: it is time to see whether others can be.
func (r *Replica) retry(now time.Duration, looks bool) (more bool, err error) {
	if r.locked || r.receiver == nil {
		return false, nil
	}
	at := time.Now()
	if looks {
		r.waiting.expire(at)
		if r.retries.changed && now-r.retries.all >= retryEvery {
			r.retryAll(now)
		}
		r.waiting.retryOthers()
		if len(r.waiting.entries) < mostWaiting/2 && now-r.retries.overflow >= overflowEvery {
			r.requestOverflow(now)
		}
	}
	if again := r.waiting.again(at); len(again) > 0 {
		err = r.enterAt(at, again, true, false, false)
		if isLocked(err) { // they still wait
			r.noteLock(err)
			return false, nil
		}
	}
	return len(r.waiting.queue) > 0, err
}
