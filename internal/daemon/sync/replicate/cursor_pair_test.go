// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"io"
	"slices"
	"testing"
	"time"

	"imbang/internal/model"
)

// A transfer that is being read leaves out what the other director told since only if the table
// has it so: an entry that a later packet came for here is the newer one, and is sent.
func TestCursorKeepsWhatStays(t *testing.T) {
	a, r := oneNode(t, few)
	s := services()[0]
	const older, ended, moved, newer, gone, unlike = 0, 1, 2, 3, 4, 5
	of := func(i int) model.Connection { return connection(s, i) }
	inserted := time.Now()
	for i := older; i <= unlike; i++ {
		a.insert(of(i))
	}

	r.use()
	defer r.mu.Unlock()
	c := newCursor(r.o.Table, anyOrder, &r.cursors)
	var got []int
	read := func(most int) error {
		into := make([]model.Connection, most)
		n, err := c.Next(into)
		for _, one := range into[:n] {
			got = append(got, int(one.Client.Addr().As4()[3]))
		}
		return err
	}
	c.read() // the page with all of them
	idle := func(c model.Connection, d time.Duration) model.Connection {
		c.Idle, c.Expires = d, c.Expires-d
		return c
	}
	conflict := of(unlike) // at about the same time: each director keeps its own
	conflict.Server = serverOf(of(unlike + 1))
	conflict.RealServer = conflict.Server
	replica := of(moved)
	replica.Flags = model.ConnReplica
	a.must(r.enter([]model.Connection{idle(of(older), time.Minute), replica, of(newer), idle(conflict, time.Since(inserted))}, false, false))
	a.must(r.enter([]model.Connection{idle(of(ended), time.Minute), of(gone)}, true, false))
	for {
		err := read(10)
		if err == io.EOF {
			break
		}
		a.must(err)
	}
	slices.Sort(got)
	if want := []int{older, ended, moved, unlike}; !slices.Equal(got, want) {
		t.Errorf("the transfer has %v, want %v", got, want)
	}
}
