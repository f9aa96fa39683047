// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// IPv4 options (RFC 791, RFC 2113).
var (
	noOperation = []byte{1}
	endOfList   = []byte{0}
	looseRoute  = []byte{131, 7, 4, 10, 20, 0, 9}
	strictRoute = []byte{137, 7, 4, 10, 20, 0, 9}
	followed    = []byte{131, 7, 8, 10, 20, 0, 9} // a route that is at its end
	recordRoute = []byte{7, 7, 4, 0, 0, 0, 0}
	timestamps  = []byte{68, 8, 5, 0, 0, 0, 0, 0}
	routerAlert = []byte{148, 4, 0, 0}
)

// A packet with a source route is left to the kernel's stack, which drops it by default, as
// Linux does before IPVS sees it; so is one with malformed options. Others are balanced.
func TestSourceRoutes(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	const known = "10.10.0.9:1000"
	server := r.establish(known, vip).String()
	conns := r.tableEntries(0)
	all := func(options ...[]byte) []byte { return slices.Concat(options...) }
	for name, options := range map[string][]byte{
		"loose source route":       looseRoute,
		"strict source route":      strictRoute,
		"route that was followed":  followed,
		"behind no operation":      all(noOperation, looseRoute),
		"behind others":            all(routerAlert, noOperation, recordRoute, strictRoute),
		"at the end of 40 bytes":   all(timestamps, timestamps, timestamps, timestamps, noOperation, looseRoute),
		"option of no length":      {7, 0, 4, 0},
		"option of one byte":       {7, 1, 4, 0},
		"option behind the header": {7, 8, 4, 0},
		"unknown option, likewise": all(noOperation, []byte{99, 200, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			for what, p := range map[string]testenv.Packet{
				"SYN":        testenv.TCP(client1, vip, "S"),
				"datagram":   testenv.UDP(client1, vip, "question"),
				"known flow": testenv.TCP(known, vip, "PA").Payload("data"),
				"fragment":   testenv.UDP(client1, vip, "the first part of it").Fragment(0x2000),
				"reply":      testenv.TCP(server, known, "A"),
			} {
				p = p.OptionBytes(options...)
				send := r.fromClient
				if what == "reply" {
					send = r.fromServer
				}
				got := r.reasonsOf(func() { wantUntouched(t, pass, send(p), p.Frame()) })
				if diff := cmp.Diff(map[string]uint64{"pass ip options": 1}, got); diff != "" {
					t.Errorf("%s: reasons (-want +got):\n%s", what, diff)
				}
			}
		})
	}
	if n := r.tableEntries(0); n != conns {
		t.Errorf("%d connections came of it", n-conns)
	}
	for name, options := range map[string][]byte{
		"no operations":              {1, 1, 1, 1},
		"record route, timestamps":   all(recordRoute, timestamps),
		"router alert":               routerAlert,
		"a route behind the end":     all(noOperation, endOfList, looseRoute),
		"unknown option":             all([]byte{99, 4, 0, 0}, noOperation),
		"as many as there may be":    slices.Repeat(noOperation, 40),
		"a route's number as a data": all([]byte{7, 11, 4, 131, 7, 4, 137, 7, 4, 1, 1}),
	} {
		p := testenv.TCP("10.10.0.8:1000", vip, "S").OptionBytes(options...)
		if got := r.fromClient(p); got.verdict != redirect || testenv.CheckSums(got.frame) != nil {
			t.Errorf("%s: %s", name, got.verdict)
		}
	}
}
