// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/sync/own"
)

// State is what is known of the role now.
func (r *Replica) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Alarms, s.Waiting, s.Counts = r.alarms.all(), len(r.waiting.entries), r.past
	s.Lacking, s.Missing = r.waiting.lacking(), r.waiting.lack()
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
		s.Receivers, s.Session = r.receivers(), r.sender.Session()
	}
	if r.receiver != nil {
		s.Master = r.receiver.State()
		s.Master.Synced = s.Master.Synced && !r.locked
	}
	return s
}

// receivers are those that are registered, with what they lack as far as is known here: the
// configuration of a pair's other director is.
func (r *Replica) receivers() []own.ReceiverStatus {
	list := r.sender.Receivers()
	if r.pair != nil {
		for i := range list {
			if list[i].Lacking > 0 {
				list[i].Missing = r.receiver.OnlyHere()
			}
		}
	}
	return list
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
	ErrLacking     = errors.New("not all connections could be entered")
	errEnded       = errors.New("the role has ended")
)

// readAfter is by how much later than a call the source's events must have been read: the
// time of a reading is that of its end.
const readAfter = 20 * time.Millisecond

// lackingEvery is how often a barrier looks whether backups have entered what they lacked.
const lackingEvery = 100 * time.Millisecond

// barrierPatience is for how long a barrier waits for entries that receivers lack, if these do not
// become fewer: a receiver tries each second to enter those that lack no service or server.
const barrierPatience = 2500 * time.Millisecond

// Barrier waits until every receiver, in a pair the other director, that is registered now has applied all that happened
// to the master's table up to the call, has the whole table, and has entered all of it. The
// receivers are returned with what they lack; after ErrBehind, which is that of a context or
// role that ends first, those with Behind 0 have applied everything, but Lacking entries for
// which a service or server is missing there, or room. ErrLacking: all have applied everything, and
// such entries do not become fewer.
func (r *Replica) Barrier(ctx context.Context) ([]own.ReceiverStatus, error) {
	return r.barrier(ctx, barrierPatience)
}

func (r *Replica) barrier(ctx context.Context, patience time.Duration) ([]own.ReceiverStatus, error) {
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
	receivers := r.receivers()
	if len(receivers) == 0 {
		return nil, nobody
	}
	if source := r.source; source != nil {
		flush := time.AfterFunc(time.Until(began)+time.Millisecond, func() { _ = source.Flush() })
		defer flush.Stop()
	}
	var number uint64
	session := 0 // in which the barrier was made; 0: it was not
	var left lacked
	for {
		if session != r.sessions && r.drained.After(began) {
			session, number = r.sessions, r.sender.Barrier(r.now(), &r.out)
			if err := r.do(); err != nil {
				return nil, err
			}
		}
		applied := session == r.sessions && r.await(receivers, number)
		if n := lackedBy(receivers); applied && n == 0 {
			return receivers, nil
		} else if left.lasts(r.now(), applied, n) >= patience {
			return receivers, lackingError(receivers)
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

// lacked is the least number of entries that receivers have lacked since all have applied
// everything.
type lacked struct {
	entries uint64
	since   time.Duration
	known   bool
}

// lasts is for how long that number has not become smaller.
func (l *lacked) lasts(now time.Duration, applied bool, entries uint64) time.Duration {
	if !applied || !l.known || entries < l.entries {
		l.entries, l.since, l.known = entries, now, applied
	}
	return now - l.since
}

func lackedBy(receivers []own.ReceiverStatus) (n uint64) {
	for i := range receivers {
		n += receivers[i].Lacking
	}
	return n
}

// lackingError names what receivers lack.
func lackingError(receivers []own.ReceiverStatus) error {
	var why []string
	for i := range receivers {
		one := &receivers[i]
		if one.Lacking == 0 {
			continue
		}
		missing := "a service or server is missing there, or its table is full"
		if len(one.Missing) > 0 {
			missing = "missing there: " + some(one.Missing)
		}
		why = append(why, fmt.Sprintf("%s lacks %d entries: %s", one.Addr, one.Lacking, missing))
	}
	return fmt.Errorf("%w: %s", ErrLacking, strings.Join(why, ", "))
}

// await notes how far receivers are and what they lack, and reports whether all have reached a
// barrier. One that was started anew is the one that has its address now.
func (r *Replica) await(receivers []own.ReceiverStatus, number uint64) bool {
	now, all := r.receivers(), true
	for i := range receivers {
		one := &receivers[i]
		j := slices.IndexFunc(now, func(s own.ReceiverStatus) bool { return s.ID == one.ID })
		if j < 0 {
			if j = slices.IndexFunc(now, func(s own.ReceiverStatus) bool { return s.Addr == one.Addr }); j >= 0 {
				one.ID = now[j].ID
			}
		}
		if j >= 0 {
			one.Lacking, one.Missing = now[j].Lacking, now[j].Missing
		}
		at, reached := r.reached[one.ID]
		if reached && at >= number {
			one.Behind, one.Synced = 0, true
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
