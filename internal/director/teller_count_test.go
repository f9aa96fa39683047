// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The end comes to its count when the other one holds the lock and is not entered yet.
func TestTellersAtTheSameTime(t *testing.T) {
	r := newRig(t, small)
	r.close()
	defer r.open(Sizes{})
	r.must(r.ns.Do(func() error {
		ending, err := Open()
		if err != nil {
			return err
		}
		defer ending.Close()
		for round := range 100 {
			var next *Teller
			began := make(chan error, 1)
			go func() {
				began <- r.ns.Do(func() (err error) {
					next, err = Tell(TellRule{Ring: 4096})
					return err
				})
			}()
			for len(began) == 0 && flock(ending.lock, unix.LOCK_EX|unix.LOCK_NB) == nil { // until the other one has it, or had it
				if err := flock(ending.lock, unix.LOCK_UN); err != nil {
					return err
				}
			}
			if err := ending.countTellers(); err != nil { // as Close does
				return err
			}
			if err := <-began; err != nil {
				return err
			}
			set, err := ending.config()
			if err != nil {
				return err
			}
			if err := next.Close(); err != nil {
				return err
			}
			if set.Syncing == 0 {
				t.Errorf("round %d: a teller receives, and the rule is not applied", round)
				return nil
			}
		}
		return nil
	}))
}
