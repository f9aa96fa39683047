// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Every packet is counted by its destination, the first are kept, none goes
// on, and afterwards all do.
func TestSink(t *testing.T) {
	for _, hook := range []SinkHook{SinkTC, SinkXDP} {
		t.Run(string(hook), func(t *testing.T) {
			r := &rig{TB: t, ns: testenv.Namespace(t, "sink")}
			r.must(r.ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
			r.must(host.Connect(host.End{NS: r.ns, Name: "a", MAC: routerMAC}, host.End{NS: r.ns, Name: "b", MAC: clientDevMAC}, host.LinkOptions{}))
			r.must(r.ns.AddAddresses("b", netip.MustParsePrefix("10.10.0.1/24")))
			var s *Sink
			r.must(r.ns.Do(func() (err error) { s, err = NewSink("b", hook); return err }))
			far := r.wire("a")
			packet := testenv.UDP(client1, "172.16.3.10:80", "of eighteen bytes.").MACs(routerMAC, clientDevMAC)
			for range 70 {
				far.send(packet)
			}
			far.send(packet.To("172.16.3.11:80"))
			far.send(testenv.UDP("[fd00::1]:1", "[fd00::2]:2", "IPv6").MACs(routerMAC, clientDevMAC))
			r.atLast(5*time.Second, "every packet is counted", func() bool {
				all, strange, err := s.Packets()
				r.must(err)
				return all == 72 && strange == 1
			})
			for address, want := range map[string]uint64{"172.16.3.10": 70, "172.16.3.11": 1, "172.16.3.12": 0} {
				if n, err := s.To(netip.MustParseAddr(address)); err != nil || n != want {
					t.Errorf("%d packets to %s, want %d; %v", n, address, want, err)
				}
			}
			frames, err := s.Frames()
			if err != nil || len(frames) != 64 || !bytes.Equal(frames[63], packet.Frame()) {
				t.Errorf("%d frames, %v: %x", len(frames), err, frames)
			}
			var own net.PacketConn
			r.must(r.ns.Do(func() (err error) { own, err = net.ListenPacket("udp4", "10.10.0.1:9"); return err }))
			defer own.Close()
			comes := func(limit time.Duration) bool {
				far.send(testenv.UDP("10.10.0.9:9", "10.10.0.1:9", "data").MACs(routerMAC, clientDevMAC))
				r.must(own.SetReadDeadline(time.Now().Add(limit)))
				_, _, err := own.ReadFrom(make([]byte, 100))
				return err == nil
			}
			if comes(200 * time.Millisecond) {
				t.Error("a packet came through")
			}
			r.must(r.ns.Do(s.Close))
			r.atLast(5*time.Second, "packets come through again", func() bool { return comes(200 * time.Millisecond) })
		})
	}
}
