// SPDX-License-Identifier: Apache-2.0

package director

import (
	"io"

	"imbang/internal/model"
)

// ConnectionPages reads the connection table for a consumer that asks for one page after
// the other, from any goroutine: what Connections says holds here, too.
type ConnectionPages struct {
	r      connReader
	page   []model.Connection
	blocks *blockReader
	taken  uint32 // blocks in pages, when it began
	spare  uint32 // and others
	next   uint32 // the block that is read next
	ended  error
}

// So many blocks are read at a time, all of a page of the table, unless so many entries were found.
const (
	blocksAtOnce = 64
	pageEntries  = 1024
)

// ConnectionPages begins to read the table.
func (d *Director) ConnectionPages(f ConnectionFilter) *ConnectionPages {
	p := &ConnectionPages{r: connReader{d: d, filter: f}}
	p.r.yield = func(c model.Connection, _ error) bool {
		p.page = append(p.page, c)
		return true
	}
	return p
}

// Next reads the next entries, as they are now: a page, which may be empty. It is valid
// until the next call. The error behind the last page is io.EOF.
func (p *ConnectionPages) Next() ([]model.Connection, error) {
	if p.ended != nil {
		return nil, p.ended
	}
	p.page = p.page[:0]
	p.ended = p.fill()
	if p.ended == io.EOF && len(p.page) > 0 {
		return p.page, nil
	}
	return p.page, p.ended
}

// fill reads some blocks as they are now.
func (p *ConnectionPages) fill() (err error) {
	if p.blocks == nil {
		if p.blocks, err = p.r.d.newBlockReader(); err != nil {
			return err
		}
		if p.taken, p.spare, err = p.blocks.ranges(); err != nil {
			return err
		}
	}
	p.blocks.forget()
	p.r.page = ^uint32(0)
	for end := p.next + blocksAtOnce; p.next < p.taken+p.spare; p.next++ {
		if len(p.page) >= pageEntries || p.next >= end {
			return nil
		}
		number := p.next
		if number >= p.taken {
			number += spareFirst - p.taken
		}
		b, err := p.blocks.read(number)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if err := p.r.block(b); err != nil {
			return err
		}
	}
	return io.EOF
}
