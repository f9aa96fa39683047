// SPDX-License-Identifier: Apache-2.0

package director

import "time"

const (
	heldLooks = 64
	heldPause = 2 * time.Millisecond
)

// confirmHeld looks again, many times, at templates that count more connections than
// there are. A packet under way holds its template before there is a connection, and
// that of a one-packet service without any: each pass may have met another one. What a
// template counts whenever it is looked at is of none of them.
func (d *Director) confirmHeld(found []suspect) (confirmed []suspect, err error) {
	var held []suspect
	for _, s := range found {
		if s.kind == AuditControlled && s.a > s.b {
			held = append(held, s)
		} else {
			confirmed = append(confirmed, s)
		}
	}
	for look := 0; look < heldLooks && len(held) > 0; look++ {
		time.Sleep(heldPause)
		still := held[:0]
		for _, s := range held {
			c, err := d.connOf(s.flow)
			if err != nil {
				return nil, err
			}
			if c == nil || c.Server != s.id {
				continue
			}
			if s.a = min(s.a, int64(c.Fwmark)); s.a > s.b {
				still = append(still, s)
			}
		}
		held = still
	}
	return append(confirmed, held...), nil
}
