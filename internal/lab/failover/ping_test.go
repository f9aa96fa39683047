// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"testing"
	"time"
)

// A ping that is sent late, when the outage in which it was due is over, does not shorten the outage.
func TestLatePings(t *testing.T) {
	const lasted = 60 // pings of the outage, from ping 20 on
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		what             string
		from, to         int // pings that are sent when ping `to` is due: the machine stood still
		lost, late, sent int
	}{
		{"on time", 0, 0, lasted, 0, 80},
		{"a stall in the outage until it is over", 23, 85, 3, 61, 80}, // ping 84 was sent 5 ms late
		{"a stall that ends in the outage", 30, 50, lasted, 0, 80},
		{"a stall before the outage", 11, 15, lasted, 0, 80},
		{"a stall after the outage", 85, 90, lasted, 0, 80},
	} {
		p := pings{begin: begin}
		for i := range 100 {
			at := i
			if i >= c.from && i < c.to {
				at = c.to
			}
			p.sent = append(p.sent, begin.Add(time.Duration(at)*pingInterval))
			p.answered = append(p.answered, at < 20 || at >= 20+lasted)
		}
		sent, lost, late := p.since(begin.Add(20 * pingInterval))
		if sent != c.sent || lost != c.lost || late != c.late {
			t.Errorf("%s: %d pings, %d lost, %d late; want %d, %d, %d", c.what, sent, lost, late, c.sent, c.lost, c.late)
		}
	}
}
