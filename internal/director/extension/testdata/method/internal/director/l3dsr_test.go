// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"net/netip"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The made-up forwarding method rewrites the address and not the port, and
// replies do not come back.
func TestMadeUpMethod(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.serve(s, model.Server{Addr: serverAddr(0), Port: 8080, Forward: model.L3DSR, Weight: 1})
	server := netip.AddrPortFrom(serverAddr(0), 80).String() // the port is the client's
	for _, flags := range []string{"S", "A", "A"} {
		p := testenv.TCP(client1, vip, flags)
		got := r.fromClient(p)
		if want := onward(p.To(server).TOS(0x28)).Frame(); got.verdict != redirect || !bytes.Equal(got.frame, want) {
			t.Fatalf("%s: %s\n%x, want\n%x", flags, got.verdict, got.frame, want)
		}
	}
	if got := r.fromServer(testenv.TCP(server, client1, "SA")); got.verdict != pass {
		t.Errorf("a reply: %s, want pass", got.verdict)
	}
	one := r.status(s.Key).Servers[0]
	if one.Forward.String() != "L3DSR" || one.Forward.Option() != "--l3dsr" || one.Active != 1 || one.Stats.InPkts != 3 || one.Stats.OutPkts != 0 {
		t.Errorf("listed as %s %s, %+v", one.Forward, one.Forward.Option(), one)
	}
	if a := r.explain(client1, vip); a.Packet.Server == nil || a.Packet.Server.Forward != "L3DSR" {
		t.Errorf("explained as %+v", a.Packet)
	}
}
