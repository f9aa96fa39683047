// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A complete checksum that equals the sum of its pseudo header by chance is not taken for one that a
// device is still to fill in: what answers the packet has a right checksum, too.
func TestChecksumLikePending(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip, say := at(f.vip(vipMasq), 80), f.refusals()
			a := model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1}
			tcp, udp := tcpService(vip, "rr"), service(model.UDP, vip, "rr")
			r.must(r.AddService(tcp), r.AddServer(tcp.Key, a), r.AddService(udp), r.AddServer(udp.Key, a))
			for name, p := range map[string]testenv.Packet{"TCP": testenv.TCP(at(f.client, 1), vip, "S"), "UDP": testenv.UDP(at(f.client, 1), vip, "")} {
				for _, n := range []int{120, 121, 1500} {
					in := byClient(sized(p, n).TTL(1))
					in.frame = testenv.LikePending(in.frame)
					if err := testenv.CheckSums(in.frame); err != nil || !testenv.IsPending(in.frame) {
						t.Fatalf("%s of %d bytes: %v", name, n, err)
					}
					refused("ttl exceeded", say.ttl).judge(t, in.frame, r.put(in, 0))
				}
			}
			r.establish(at(f.client, 1000), vip)
			r.must(r.Drain(tcp.Key, a.AddrPort(), time.Hour))
			r.deadlineOver(0)
			p := testenv.TCP(at(f.client, 1000), vip, "PA").Payload("data")
			r.wantReset(f, "a reset", p, r.put(sent{frame: testenv.LikePending(p.Frame())}, 0))
		})
	}
}
