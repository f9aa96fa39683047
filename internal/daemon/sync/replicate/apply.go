// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"
	"time"

	"imbang/internal/daemon/sync/own"
	"imbang/internal/director"
	"imbang/internal/model"
)

// entryReader reads a connection table.
type entryReader interface {
	ConnectionPages(director.ConnectionFilter) *director.ConnectionPages
	StateTimeouts() (func(*model.Connection), error)
}

// apply changes the table as the receiver says, in its order.
func (r *Replica) apply() error {
	all := r.out.Apply
	var batch []model.Connection
	for len(all) > 0 {
		n := 1
		first := all[0]
		for n < len(all) && all[n].Delete == first.Delete && all[n].Swept == first.Swept && all[n].Known == first.Known && n < director.InsertBatch {
			n++
		}
		batch = batch[:0]
		for _, c := range all[:n] {
			batch = append(batch, c.Conn)
		}
		var err error
		if first.Swept {
			err = r.sweep(batch)
		} else {
			err = r.enter(batch, first.Delete, first.Known)
		}
		if err != nil {
			return err
		}
		all = all[n:]
		r.state.Last = time.Now()
	}
	return nil
}

// enter enters entries, or ends them. known, of a pair: one that is not here has ended.
func (r *Replica) enter(batch []model.Connection, ends, known bool) error {
	return r.enterAt(time.Now(), batch, false, ends, known)
}

// enterAt enters entries whose times are those of a moment; retried: they have waited.
func (r *Replica) enterAt(at time.Time, batch []model.Connection, retried, ends, known bool) error {
	var errs []error
	var err error
	var merged director.Merged
	r.outside(func() {
		switch {
		case ends:
			errs, merged.Took, err = r.o.Table.Withdraw(batch)
		case r.pair != nil:
			errs, merged, err = r.o.Table.Merge(batch, known)
		default:
			errs, err = r.o.Table.Replicate(batch)
		}
	})
	if r.pair != nil { // what a cursor has read of them is older, but for what stays as it was here
		for i, took := range merged.Took {
			if took {
				r.cursors.note(&batch[i])
			}
		}
	}
	r.state.Conflicts.Kept += merged.Kept
	r.state.Conflicts.Replaced += merged.Replaced
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	r.lockNoted = false
	for i, err := range errs {
		switch {
		case err == nil || ends:
			r.waiting.remove(&batch[i])
		case waits(err) && r.waiting.keep(at, &batch[i], err, retried):
		default:
			r.state.Refused++
		}
	}
	return nil
}

// noteReplicated notes in the table of a pair whether it has had all of the other director's.
func (r *Replica) noteReplicated() error {
	if r.pair == nil || r.locked || r.receiver.HadAll() == r.replicated {
		return nil
	}
	all := !r.replicated
	var err error
	r.outside(func() { err = r.o.Table.SetReplicated(all) })
	if isLocked(err) { // the next look notes it
		return nil
	}
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	r.replicated = all
	return nil
}

// sweep ends entries that the master does not have.
func (r *Replica) sweep(batch []model.Connection) (err error) {
	ended := 0
	r.outside(func() { ended, err = r.o.Table.Sweep(batch) })
	r.state.Swept += uint64(ended)
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	return nil
}

// isMissing reports whether an entry can be entered when a service or server is added.
func isMissing(err error) bool {
	return errors.Is(err, model.ErrNoService) || errors.Is(err, model.ErrNoServer)
}

// waits reports whether an entry can be entered when the table has changed.
func waits(err error) bool {
	return isMissing(err) || errors.Is(err, director.ErrNoTemplate) || errors.Is(err, model.ErrTableFull) ||
		errors.Is(err, director.ErrConnectionExists)
}

// look gives the machine the services if they have changed.
func (r *Replica) look(now time.Duration) error {
	if r.locked {
		return nil
	}
	if r.config.Interface != "" && !r.socket.isBound() {
		return fmt.Errorf("replication: interface %s is gone: the role can be started again when it is back", r.config.Interface)
	}
	generation, err := r.o.Table.Generation()
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if generation == r.looked {
		r.noteDeleted()
		return nil
	}
	var list []model.ServiceStatus
	r.outside(func() { list, err = r.o.Table.Services() })
	if isLocked(err) { // the next look reads them
		r.noteLock(err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("replication: read the services: %w", err)
	}
	r.looked, r.lockNoted = generation, false
	services := make([]own.Service, len(list))
	for i, s := range list {
		services[i].Service = s.Service
		for _, server := range s.Servers {
			services[i].Servers = append(services[i].Servers, server.Server)
		}
	}
	r.noteServices(now, services)
	r.machine.SetServices(now, services, &r.out)
	r.noteDeleted()
	return nil
}

// noteDeleted notes which services and servers neither director has, that entries wait for.
func (r *Replica) noteDeleted() {
	if r.receiver == nil || len(r.waiting.missing) == 0 {
		return
	}
	if without := r.receiver.Without(); without != nil {
		r.waiting.noteDeleted(func(p pair) bool { return without(p.service, p.server) })
	}
}
