// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// ConnectionPages reads the connection table for a consumer that asks for one page after
// the other, from any goroutine: what Connections says holds here, too.
type ConnectionPages struct {
	r     connReader
	page  []model.Connection
	four  pages[bpfobj.LbFlow4, bpfobj.LbConn4]
	six   pages[bpfobj.LbFlow, bpfobj.LbConn6]
	ended error
}

// pages reads a hash map.
type pages[K, V any] struct {
	m      *ebpf.Map
	cursor ebpf.MapBatchCursor
	keys   []K
	values []V
	over   bool
}

// next calls with some elements.
func (p *pages[K, V]) next(call func([]K, []V) error) error {
	if p.keys == nil {
		p.keys, p.values = make([]K, connBatch), make([]V, connBatch)
	}
	n, err := p.m.BatchLookup(&p.cursor, p.keys, p.values, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		p.over, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("read connections: %w", err)
	}
	return call(p.keys[:n], p.values[:n])
}

// ConnectionPages begins to read the table.
func (d *Director) ConnectionPages(f ConnectionFilter) *ConnectionPages {
	p := &ConnectionPages{r: connReader{d: d, filter: f}}
	p.four.m, p.six.m = d.maps.Conns4, d.maps.Conns6
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
	switch {
	case !p.four.over:
		p.ended = p.four.next(p.r.entries4)
	case !p.six.over:
		p.ended = p.six.next(p.r.entries6)
	default:
		p.ended = io.EOF
	}
	return p.page, p.ended
}
