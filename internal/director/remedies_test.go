// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"

	"imbang/internal/testenv"
)

// The settings that Linux has not: what they change, and that without them all
// is as on Linux.

// turn changes settings, written as the command takes them.
func (r *rig) turn(settings ...string) {
	r.Helper()
	for _, text := range settings {
		s, err := ParseSetting(text)
		r.must(err, r.Set(s))
	}
}

// A hash table's client whose server can take no connection goes on to one
// that can, always the same; the others stay where they were.
func TestHashFallback(t *testing.T) {
	for _, scheduler := range []string{"sh", "mh", "dh"} {
		t.Run(scheduler, func(t *testing.T) {
			r := newRig(t, small)
			const clients = 64
			var vips []string
			for i := range clients {
				vips = append(vips, vip)
				if scheduler == "dh" { // hashes where clients go to
					vips[i] = nthVIP(i)
				}
			}
			for i, at := range vips {
				if i == 0 || at != vips[0] {
					s := tcpService(at, scheduler)
					r.addService(s, 1, 1, 1)
				}
			}
			port := 1000
			// who answers each client, by a letter; - refuses.
			who := func() (all string) {
				port++
				for i, at := range vips {
					got := r.fromClient(testenv.TCP(fmt.Sprintf("10.10.3.%d:%d", i, port), at, "S"))
					if to, err := got.server(); err == nil && to.Port() == 8080 {
						all += string('A' + to.Addr().As4()[3] - 10)
					} else {
						all += "-"
					}
				}
				return all
			}
			before := who()
			for i, at := range vips {
				if i == 0 || at != vips[0] {
					r.must(r.EditServer(tcpService(at, scheduler).Key, realServer(1, 0)))
				}
			}
			linux := who()
			r.turn("hash_fallback=1")
			remedied := who()
			moved := map[byte]int{}
			for i := range before {
				switch {
				case before[i] != 'B' && (linux[i] != before[i] || remedied[i] != before[i]):
					t.Errorf("client %d moved from %c to %c, with fallback %c", i, before[i], linux[i], remedied[i])
				case before[i] == 'B' && (linux[i] != '-' || remedied[i] == '-' || remedied[i] == 'B'):
					t.Errorf("client %d of the quiescent server goes to %c, with fallback %c", i, linux[i], remedied[i])
				case before[i] == 'B':
					moved[remedied[i]]++
				}
			}
			if moved['A']+moved['C'] < clients/8 {
				t.Errorf("of %d clients only %v had the quiescent server: %s", clients, moved, before)
			}
			if again := who(); again != remedied {
				t.Errorf("with fallback clients go to %s, then to %s", remedied, again)
			}
		})
	}
}
