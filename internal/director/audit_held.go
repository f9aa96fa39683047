// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	heldLooks = 64
	heldPause = 2 * time.Millisecond

	fewerCounts = 2
)

// confirmControlled judges templates again that count other connections than there are, which each
// pass may have met while packets opened or ended some.
func (d *Director) confirmControlled(ctx context.Context, found []suspect) (confirmed []suspect, err error) {
	var more, fewer []suspect
	for _, s := range found {
		switch {
		case s.kind == AuditControlled && s.a > s.b:
			more = append(more, s)
		case s.kind == AuditControlled:
			fewer = append(fewer, s)
		default:
			confirmed = append(confirmed, s)
		}
	}
	if more, err = d.confirmMore(more); err != nil {
		return nil, err
	}
	fewer, err = d.confirmFewer(ctx, fewer)
	return slices.Concat(confirmed, more, fewer), err
}

// confirmMore looks again, many times, at templates that count more connections than
// there are. A packet under way holds its template before there is a connection, and
// that of a one-packet service without any: each pass may have met another one. What a
// template counts whenever it is looked at is of none of them.
func (d *Director) confirmMore(held []suspect) ([]suspect, error) {
	for look := 0; look < heldLooks && len(held) > 0; look++ {
		time.Sleep(heldPause)
		still := held[:0]
		for _, s := range held {
			controls, err := d.controls(s)
			if err != nil {
				return nil, err
			}
			if s.a = min(s.a, controls); s.a > s.b {
				still = append(still, s)
			}
		}
		held = still
	}
	return held, nil
}

// controls is how many connections a template counts; -1: it is gone.
func (d *Director) controls(s suspect) (int64, error) {
	c, err := d.connOf(s.flow)
	if c == nil || err != nil || c.Server != s.id {
		return -1, err
	}
	return int64(c.Fwmark), nil
}

// confirmFewer counts the connections again of templates that count fewer than there are. A pass may
// have read a connection that ended before its template was read. So each template is read before
// and behind the connections here, and counts fewer at both times, each time.
func (d *Director) confirmFewer(ctx context.Context, fewer []suspect) ([]suspect, error) {
	for range fewerCounts {
		if len(fewer) == 0 {
			break
		}
		most, conns := make([]int64, len(fewer)), map[uint64]int64{}
		look := func() error {
			for i, s := range fewer {
				controls, err := d.controls(s)
				if err != nil {
					return err
				}
				most[i] = max(most[i], controls)
				if controls < 0 {
					most[i] = s.b
				}
			}
			return nil
		}
		count := func(e *entry) error {
			if e.Flags&connDead == 0 && e.Flow.Template == 0 && e.Template != 0 {
				h := newHold(&e.Flow, e)
				conns[h.valid]++
				if h.aside != h.valid {
					conns[h.aside]++
				}
			}
			return nil
		}
		if err := errors.Join(look(), d.eachEntry(ctx, 0, count), look()); err != nil {
			return nil, err
		}
		still := fewer[:0]
		for i, s := range fewer {
			s.a, s.b = max(s.a, most[i]), min(s.b, conns[serverHash(s.flow, s.id)])
			if s.a < s.b {
				still = append(still, s)
			}
		}
		fewer = still
	}
	return fewer, nil
}
