// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"time"
)

const (
	heldLooks = 64
	heldPause = 2 * time.Millisecond

	heldCounts = 4
)

// confirmControlled judges templates again that count other connections than there are, which each
// pass may have met while packets opened or ended some.
func (d *Director) confirmControlled(ctx context.Context, found []suspect) ([]suspect, error) {
	var held, confirmed []suspect
	for _, s := range found {
		if s.kind == AuditControlled {
			held = append(held, s)
		} else {
			confirmed = append(confirmed, s)
		}
	}
	held, err := d.lookAgain(held)
	for range heldCounts {
		if len(held) == 0 || err != nil {
			break
		}
		held, err = d.countAgain(ctx, held)
	}
	return append(confirmed, held...), err
}

// lookAgain looks, many times, at templates that count more connections than
// there are. A packet under way holds its template before there is a connection, and
// that of a one-packet service without any: each pass may have met another one. What a
// template counts whenever it is looked at is of none of them.
func (d *Director) lookAgain(held []suspect) ([]suspect, error) {
	for range heldLooks {
		still, more := held[:0], false
		for _, s := range held {
			if s.a > s.b {
				controls, err := d.controls(s)
				if err != nil {
					return nil, err
				}
				if s.a = min(s.a, controls); s.a <= s.b {
					continue
				}
				more = true
			}
			still = append(still, s)
		}
		if held = still; !more {
			break
		}
		time.Sleep(heldPause)
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

// countAgain counts the connections again of templates that count more or fewer than there are. A pass
// may have read a template before one of them was opened, or a connection that ended before its template
// was read. So each template is read before and behind the connections here, and is on the same side
// of them both times, or it is sound.
func (d *Director) countAgain(ctx context.Context, held []suspect) ([]suspect, error) {
	least, most := make([]int64, len(held)), make([]int64, len(held))
	look := func(first bool) error {
		for i, s := range held {
			controls, err := d.controls(s)
			if err != nil {
				return err
			}
			if first {
				least[i], most[i] = controls, controls
			}
			least[i], most[i] = min(least[i], controls), max(most[i], controls)
		}
		return nil
	}
	conns := make(map[uint64]int64, len(held))
	for _, s := range held {
		conns[serverHash(s.flow, s.id)] = 0
	}
	count := func(e *entry) error {
		if e.Flags&connDead != 0 || e.Flow.Template != 0 || e.Template == 0 {
			return nil
		}
		h := newHold(e)
		if n, ok := conns[h.valid]; ok {
			conns[h.valid] = n + 1
		}
		if n, ok := conns[h.aside]; ok && h.aside != h.valid {
			conns[h.aside] = n + 1
		}
		return nil
	}
	if err := errors.Join(look(true), d.eachEntry(ctx, 0, count), look(false)); err != nil {
		return nil, err
	}
	still := held[:0]
	for i, s := range held {
		there, controls := conns[serverHash(s.flow, s.id)], least[i]
		if s.a < s.b {
			controls = most[i]
		}
		// Else it is gone, or sound.
		if least[i] >= 0 && controls != there && controls > there == (s.a > s.b) {
			if diff := controls - there; max(diff, -diff) < max(s.a-s.b, s.b-s.a) {
				s.a, s.b = controls, there // what is sure
			}
			still = append(still, s)
		}
	}
	return still, nil
}
