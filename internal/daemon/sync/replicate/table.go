// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"io"
	"iter"
	"net/netip"

	"imbang/internal/director"
	"imbang/internal/model"
)

// flowKey identifies an entry of the connection table.
type flowKey struct {
	protocol        model.Protocol
	template        bool
	client, virtual netip.AddrPort
	engineData      string
}

func flowOf(c *model.Connection) flowKey {
	return flowKey{c.Protocol, c.Template, c.Client, c.Virtual, c.EngineData}
}

// readAhead is how many entries a cursor reads at a time: at least as many as the director
// does, so that no entry was read before the read-ahead in front of it.
const readAhead = 4096

// changes are the flows that events told of since the last two times that a cursor read
// ahead. What a cursor has read of them is older.
type changes struct {
	now, before map[flowKey]struct{}
	cursors     int
}

func (l *changes) note(c *model.Connection) {
	if l.cursors > 0 {
		l.now[flowOf(c)] = struct{}{}
	}
}

func (l *changes) turn() {
	l.before, l.now = l.now, map[flowKey]struct{}{}
}

func (l *changes) has(c *model.Connection) bool {
	key := flowOf(c)
	if _, ok := l.now[key]; ok {
		return true
	}
	_, ok := l.before[key]
	return ok
}

// cursor reads a director's table once, for a machine: templates, then connections.
type cursor struct {
	next    func() (model.Connection, error, bool)
	stop    func()
	timeout func(*model.Connection) // fills it in
	changes *changes                // nil: events do not matter
	ahead   []model.Connection
	at      int
	err     error
}

// entries yields the table in the order of a cursor.
func entries(t entryReader) iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, kind := range []director.EntryKind{director.OnlyTemplates, director.OnlyConnections} {
			for c, err := range t.Connections(director.ConnectionFilter{Kind: kind}) {
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

func newCursor(t entryReader, l *changes) *cursor {
	c := &cursor{changes: l}
	if c.timeout, c.err = t.StateTimeouts(); c.err != nil {
		return c
	}
	c.next, c.stop = iter.Pull2(entries(t))
	if l != nil {
		l.cursors++
		l.turn()
	}
	return c
}

// Next implements own.Cursor.
func (c *cursor) Next(into []model.Connection) (n int, err error) {
	for n < len(into) {
		if c.at == len(c.ahead) && !c.read() {
			break
		}
		one := &c.ahead[c.at]
		c.at++
		if c.changes != nil && c.changes.has(one) {
			continue // an event has told of it, or will
		}
		into[n] = *one
		n++
	}
	if n == 0 {
		return 0, c.err
	}
	return n, nil
}

// read reads ahead; false at the end.
func (c *cursor) read() bool {
	if c.err != nil {
		return false
	}
	c.ahead, c.at = c.ahead[:0], 0
	if c.changes != nil {
		c.changes.turn()
	}
	for len(c.ahead) < readAhead {
		one, err, ok := c.next()
		if !ok {
			err = io.EOF
		}
		if err != nil {
			c.end(err)
			break
		}
		if !one.Template {
			c.timeout(&one)
		}
		c.ahead = append(c.ahead, one)
	}
	return len(c.ahead) > 0
}

// Close implements own.Cursor.
func (c *cursor) Close() {
	if c.err == nil {
		c.end(io.EOF)
	}
}

func (c *cursor) end(err error) {
	c.err = err
	c.stop()
	if c.changes != nil {
		if c.changes.cursors--; c.changes.cursors == 0 {
			c.changes.now, c.changes.before = nil, nil
		}
	}
}
