// SPDX-License-Identifier: Apache-2.0

package own

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/model"
)

// Cursor reads a connection table once, templates before connections.
type Cursor interface {
	// Next reads some entries into a slice, and returns how many, and io.EOF behind the
	// last one; 0 without an error says that it has not found one yet. Any other error ends
	// the pass, which is begun again later. Entries must be as they are when Next is
	// called: an entry that was read before and whose deletion was sent meanwhile would be
	// entered again. Of a connection Timeout is the whole timeout of its state, or 0 if
	// that is not known.
	Next(entries []model.Connection) (n int, err error)
	// Close ends the pass, which need not have been read to its end.
	Close()
}

// Config is what a sender and a receiver of a group are made of.
type Config struct {
	Group uint16
	Key   []byte // at least 16 bytes
	// To are the destinations: a multicast group, or each other director.
	To []netip.AddrPort
	// MaxDatagram is the largest payload [bytes]; 0: 1400.
	MaxDatagram int
	// Random returns random numbers that cannot be predicted.
	Random func() uint64
	// Table begins a pass over the own connection table. A sender sends its entries to
	// receivers that join, and refreshes copies. A receiver deletes what the sender does not
	// have; nil: it leaves such entries until they expire.
	Table func() Cursor

	// The rest is of a sender; 0 stands for the default.

	// Refresh is Table in any order, for what it costs less; nil: Table. It reads what is
	// refreshed.
	Refresh func() Cursor

	// Window is how many datagrams of a bulk transfer can be without acknowledgement; 256.
	Window int
	// Rate is how many datagrams of a bulk transfer are sent in a second; 20000.
	Rate int
	// Store is how many datagrams are kept to be sent again; 8192.
	Store int
	// Walk is the interval at which the table is read for entries to refresh; 10 s. It is
	// longer if the reading takes longer. Entries with a timeout of less than twice that are
	// refreshed in each pass.
	Walk time.Duration
	// WalkRate is how many entries are read in a second for that; 200000.
	WalkRate int

	// Replicated, of a pair: the own table has had all that the other director has, as before the
	// daemon was restarted. Replicas are not requested then.
	Replicated bool

	pair bool // of a director of a pair (NewPair)
}

// least is the shortest key.
const leastKey = 16

func (c *Config) complete() error {
	if len(c.Key) < leastKey {
		return fmt.Errorf("a key of %d bytes: want at least %d", len(c.Key), leastKey)
	}
	if c.Random == nil || len(c.To) == 0 {
		return errors.New("a source of random numbers and a destination are required")
	}
	set := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	set(&c.MaxDatagram, 1400)
	set(&c.Window, 256)
	set(&c.Rate, 20000)
	set(&c.Store, 8192)
	set(&c.WalkRate, 200_000)
	if c.Walk == 0 {
		c.Walk = 10 * time.Second
	}
	if c.MaxDatagram < MinDatagram || c.MaxDatagram > MaxDatagram {
		return fmt.Errorf("datagrams of %d bytes: want %d to %d", c.MaxDatagram, MinDatagram, MaxDatagram)
	}
	if c.Window < 32 || c.Window > reorder/2 {
		return fmt.Errorf("a window of %d datagrams: want 32 to %d", c.Window, reorder/2)
	}
	if c.Store < 4*c.Window || c.Store > 1<<20 {
		return fmt.Errorf("a store of %d datagrams: want %d to %d", c.Store, 4*c.Window, 1<<20)
	}
	if c.Rate < 0 || c.Walk < 0 || c.WalkRate < 0 {
		return errors.New("a rate or an interval is negative")
	}
	return nil
}
