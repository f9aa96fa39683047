// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"fmt"
	"slices"

	"imbang/internal/daemon/sync/own"
)

// State is what is known of the role now.
func (r *Replica) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Alarms, s.Waiting = slices.Clone(s.Alarms), len(r.waiting.entries)
	if r.machine != nil {
		s.Counts = r.machine.Counts()
	}
	if r.sender != nil {
		s.Receivers = r.sender.Receivers()
	}
	if r.receiver != nil {
		s.Master = r.receiver.State()
	}
	return s
}

// Barrier waits until every receiver that is registered now has applied all that happened
// to the master's table up to the call, as far as the source has told of it.
func (r *Replica) Barrier(ctx context.Context) error {
	reached := make(chan own.Reached, 64)
	r.mu.Lock()
	if r.sender == nil {
		r.mu.Unlock()
		return fmt.Errorf("replication: a barrier is a master's")
	}
	wait := map[uint64]string{}
	for _, one := range r.sender.Receivers() {
		wait[one.ID] = one.Addr.String()
	}
	number := r.sender.Barrier(r.now(), &r.out)
	r.barriers[number] = reached
	err := r.do()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.barriers, number)
		r.mu.Unlock()
	}()
	if err != nil {
		return err
	}
	for len(wait) > 0 {
		select {
		case one := <-reached:
			delete(wait, one.Receiver)
		case <-ctx.Done():
			return fmt.Errorf("replication: %d receivers have not applied all: %w", len(wait), ctx.Err())
		}
	}
	return nil
}
