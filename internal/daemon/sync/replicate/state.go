// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"imbang/internal/daemon/sync/own"
)

// State is what is known of the role now.
func (r *Replica) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Alarms, s.Waiting, s.Counts = r.alarms.all(), len(r.waiting.entries), r.past
	s.Lacking = r.waiting.lacking()
	switch {
	case r.pair != nil:
		s.Counts, s.Applied = r.past.Add(r.sender.Counts()), r.receiver.Counts()
		for i, n := range s.Applied.Refused {
			s.Counts.Refused[i] += n
		}
	case r.machine != nil:
		s.Counts = r.past.Add(r.machine.Counts())
	}
	if r.sender != nil {
		s.Receivers, s.Session = r.sender.Receivers(), r.sender.Session()
	}
	if r.receiver != nil {
		s.Master = r.receiver.State()
		s.Master.Synced = s.Master.Synced && !r.locked
	}
	return s
}

// refused is how many datagrams and records were refused.
func refused(c own.Counts) (n uint64) {
	for _, one := range c.Refused {
		n += one
	}
	return n
}

// announce wakes barriers up.
func (r *Replica) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Errors of Barrier.
var (
	ErrNotMaster   = errors.New("a barrier is a master's: this director is a backup")
	ErrNoReceivers = errors.New("no backup is registered: start one with the same group and key (imbang status lists those that are)")
	ErrNoPeer      = errors.New("the other director of the pair does not answer: is its replication started, with role pair and the same group and key?")
	ErrBehind      = errors.New("not all backups have applied everything")
	errEnded       = errors.New("the role has ended")
)

// readAfter is by how much later than a call the source's events must have been read: the
// time of a reading is that of its end.
const readAfter = 20 * time.Millisecond

// lackingEvery is how often a barrier looks whether backups have entered what they lacked.
const lackingEvery = 100 * time.Millisecond

// Barrier waits until every receiver, in a pair the other director, that is registered now has applied all that happened
// to the master's table up to the call, has the whole table, and has entered all of it. The
// receivers are returned with what they lack; after ErrBehind, which is that of a context or
// role that ends first, those with Behind 0 have applied everything, but Lacking entries for
// which a service or server is missing there, or room.
func (r *Replica) Barrier(ctx context.Context) ([]own.ReceiverStatus, error) {
	began := time.Now().Add(readAfter)
	r.use()
	defer r.mu.Unlock()
	if !r.config.Role.sends() {
		return nil, ErrNotMaster
	}
	nobody := ErrNoReceivers
	if r.config.Role == RolePair {
		nobody = ErrNoPeer
	}
	if r.sender == nil {
		return nil, nobody
	}
	receivers := r.sender.Receivers()
	if len(receivers) == 0 {
		return nil, nobody
	}
	if source := r.source; source != nil {
		flush := time.AfterFunc(time.Until(began)+time.Millisecond, func() { _ = source.Flush() })
		defer flush.Stop()
	}
	var number uint64
	session := 0 // in which the barrier was made; 0: it was not
	for {
		if session != r.sessions && r.drained.After(began) {
			session, number = r.sessions, r.sender.Barrier(r.now(), &r.out)
			if err := r.do(); err != nil {
				return nil, err
			}
		}
		if session == r.sessions && r.await(receivers, number) {
			return receivers, nil
		}
		if r.ended {
			return receivers, fmt.Errorf("%w: %w", ErrBehind, errEnded)
		}
		changed := r.changed
		var again <-chan time.Time
		if slices.ContainsFunc(receivers, func(s own.ReceiverStatus) bool { return s.Lacking > 0 }) {
			again = time.After(lackingEvery)
		}
		r.mu.Unlock()
		select {
		case <-changed:
			r.use()
		case <-again:
			r.use()
		case <-ctx.Done():
			r.use()
			return receivers, fmt.Errorf("%w: %w", ErrBehind, context.Cause(ctx))
		}
	}
}

// await notes how far receivers are, and reports whether all have reached a barrier and lack
// no entry. One that was started anew is the one that has its address now.
func (r *Replica) await(receivers []own.ReceiverStatus, number uint64) bool {
	now, all := r.sender.Receivers(), true
	for i := range receivers {
		one := &receivers[i]
		j := slices.IndexFunc(now, func(s own.ReceiverStatus) bool { return s.ID == one.ID })
		if j < 0 {
			if j = slices.IndexFunc(now, func(s own.ReceiverStatus) bool { return s.Addr == one.Addr }); j >= 0 {
				one.ID = now[j].ID
			}
		}
		if j >= 0 {
			one.Lacking = now[j].Lacking
		}
		at, reached := r.reached[one.ID]
		if reached && at >= number {
			one.Behind, one.Synced = 0, true
			all = all && one.Lacking == 0
			continue
		}
		all = false
		one.Behind = max(one.Behind, 1)
		if j >= 0 {
			one.Behind, one.Synced = max(now[j].Behind, 1), now[j].Synced
		}
	}
	return all
}
