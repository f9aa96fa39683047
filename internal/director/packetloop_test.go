// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A loop's packets are as many connections as it has flows, and more packets
// of theirs make no others.
func TestPacketLoop(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			web := at(f.vip(1), 80)
			s := tcpService(web, "rr")
			r.serve(s, model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1})
			var l PacketLoop
			r.must(r.ns.Do(func() (err error) {
				l, err = NewPacketLoop(r.Director, clientDev, serverDev)
				return err
			}))
			defer l.Close()
			send := func(flags string, n int, way Way) (fate Fate) {
				frame := testenv.TCP(at(f.client, 1024), web, flags).Frame()
				frame = append(frame, make([]byte, PacketLoopBytes-len(frame))...)
				const first, flows = 0x0a0a0002, 64
				r.must(l.Scene(frame, first, flows))
				r.must(r.ns.Do(func() (err error) {
					_, fate, err = l.Times(n, way)
					return err
				}))
				return fate
			}
			for _, step := range []struct {
				flags string
				n     int
				way   Way
				want  Fate
				conns uint64
			}{{"S", 100, Nowhere, 0, 0}, {"S", 64, FromHere, Forwarded, 64}, {"A", 640, FromHere, Forwarded, 64}, {"A", 64, WholeOnly, Forwarded, 64}, {"A", 64, InXDP, Forwarded, 64}} {
				if fate := send(step.flags, step.n, step.way); fate != step.want {
					t.Errorf("%+v: fate %d", step, fate)
				}
				if got := r.status(s.Key).Stats.Conns; got != step.conns {
					t.Errorf("%+v: %d connections", step, got)
				}
			}
		})
	}
}
