// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"io"
	"slices"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// cursors are those that read the table of a master.
type cursors []*cursor

// note says that an event has told of an entry: what a cursor has read of it is older.
func (l cursors) note(c *model.Connection) {
	for _, one := range l {
		one.told[c.Key()] = struct{}{}
	}
}

// cursor reads a director's table once, for a machine. It implements own.Cursor.
type cursor struct {
	pages   []*director.ConnectionPages // that are left to be read
	timeout func(*model.Connection)     // fills it in
	page    []model.Connection          // that was read, and is to be returned
	at      time.Time                   // when it was
	told    map[model.EntryKey]struct{} // what events told of since
	among   *cursors                    // nil: events do not matter
	err     error
}

// inOrder is a pass that reads templates before the connections that they control: it reads
// the table twice. anyOrder reads it once. inReverse is a backup's, which ends entries: a
// template after those that it controls.
var (
	inOrder   = []director.EntryKind{director.OnlyTemplates, director.OnlyConnections}
	anyOrder  = []director.EntryKind{director.AnyEntry}
	inReverse = []director.EntryKind{director.OnlyConnections, director.OnlyTemplates}
)

func newCursor(t entryReader, kinds []director.EntryKind, among *cursors) *cursor {
	c := &cursor{among: among}
	if c.timeout, c.err = t.StateTimeouts(); c.err != nil {
		return c
	}
	for _, kind := range kinds {
		c.pages = append(c.pages, t.ConnectionPages(director.ConnectionFilter{Kind: kind}))
	}
	if among != nil {
		c.told = map[model.EntryKey]struct{}{}
		*among = append(*among, c)
	}
	return c
}

// Next reads one page at most, however few of its entries are wanted: the caller's lock keeps
// events waiting, and of millions of connections none may be a template.
func (c *cursor) Next(into []model.Connection) (n int, err error) {
	age := time.Since(c.at)
	for read := false; n < len(into) && c.err == nil; {
		if len(c.page) == 0 {
			if read {
				break
			}
			c.read()
			read, age = true, 0
			continue
		}
		one := &c.page[0]
		c.page = c.page[1:]
		if c.wasTold(one) {
			continue
		}
		if !one.Template {
			c.timeout(one)
		}
		into[n] = *one
		into[n].Expires = max(one.Expires-age, 0)
		n++
	}
	if n == 0 {
		return 0, c.err
	}
	return n, nil
}

// wasTold reports whether an event has told of an entry since it was read.
func (c *cursor) wasTold(entry *model.Connection) bool {
	if len(c.told) == 0 {
		return false
	}
	_, ok := c.told[entry.Key()]
	return ok
}

// read reads a page.
func (c *cursor) read() {
	clear(c.told)
	if len(c.pages) == 0 {
		c.end(io.EOF)
		return
	}
	page, err := c.pages[0].Next()
	switch {
	case err == io.EOF:
		c.pages = c.pages[1:]
	case err != nil:
		c.end(err)
	default:
		c.page, c.at = page, time.Now()
	}
}

// Close implements own.Cursor.
func (c *cursor) Close() {
	if c.err == nil {
		c.end(io.EOF)
	}
}

func (c *cursor) end(err error) {
	c.err, c.page = err, nil
	if c.among != nil {
		*c.among = slices.DeleteFunc(*c.among, func(o *cursor) bool { return o == c })
	}
}
