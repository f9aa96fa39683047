// SPDX-License-Identifier: Apache-2.0

package load

// pool keeps the connections that stay open between requests, apart by source
// address and target. The last one parked is the first reused, so that a
// server sees as few connections as the load needs.
type pool struct {
	targets int32
	parked  map[int32]*queue
	size    int
}

func newPool(targets int) pool {
	return pool{targets: int32(targets), parked: map[int32]*queue{}}
}

func (p *pool) at(source, target int32) *queue {
	key := source*p.targets + target
	q := p.parked[key]
	if q == nil {
		q = &queue{none, none}
		p.parked[key] = q
	}
	return q
}

func (p *pool) put(s *slab, c *conn) {
	p.at(c.source, c.target).push(s, c)
	p.size++
}

func (p *pool) remove(s *slab, c *conn) {
	p.at(c.source, c.target).remove(s, c)
	p.size--
}

// take is an open connection from a source to a target, or nil.
func (p *pool) take(s *slab, source, target int32) *conn {
	if p.size == 0 {
		return nil
	}
	q := p.at(source, target)
	if q.tail == none {
		return nil
	}
	c := s.at(q.tail)
	p.remove(s, c)
	return c
}

// any is one of the parked connections, or nil.
func (p *pool) any(s *slab) *conn {
	for _, q := range p.parked {
		if c := q.first(s); c != nil {
			return c
		}
	}
	return nil
}
