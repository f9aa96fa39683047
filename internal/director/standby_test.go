// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// With backup_only a director whose backup runs passes what clients send, of whatever
// connection, by the whole path and by XDP, and translates replies. It does not once the
// backup ends, or is killed.
func TestStandby(t *testing.T) {
	t.Parallel()
	r := newXDPRig(t)
	r.addService(tcpService(vip, "rr"), 1)
	r.ownsRepliesHere()
	r.establish(client1, vip)
	check := func(when string, standby bool) {
		t.Helper()
		want, wantXDP, passed := redirect, xdpRedirect, uint64(0)
		if standby {
			want, wantXDP, passed = pass, xdpPass, 2
		}
		known, opening := testenv.TCP(client1, vip, "A"), testenv.TCP("10.10.0.9:9", vip, "S")
		reasons := r.reasonsOf(func() {
			for name, p := range map[string]testenv.Packet{"of a connection": known, "SYN": opening} {
				if got := r.fromClient(p); got.verdict != want {
					t.Errorf("%s: %s: %v, want %v", when, name, got.verdict, want)
				}
			}
		})
		if reasons["pass backup"] != passed {
			t.Errorf("%s: %v", when, reasons)
		}
		if got := r.sure(false, known.Frame()); got.verdict != wantXDP {
			t.Errorf("%s: XDP: action %d, want %d", when, got.verdict, wantXDP)
		}
		if got := r.fromServer(testenv.TCP(server0, client1, "A")); got.verdict != redirect {
			t.Errorf("%s: a reply: %v", when, got.verdict)
		}
	}
	soon := func() { r.must(r.Standby(in(time.Hour))) }
	soon()
	check("a backup, not backup_only", false)
	r.must(r.Set(Setting{Name: "backup_only", Value: 1}))
	check("both", true)
	r.must(r.Standby(in(-time.Second)))
	check("killed", false)
	soon()
	check("begun again", true)
	r.must(r.Standby(0))
	check("ended", false)
	soon()
	r.must(r.Set(Setting{Name: "backup_only", Value: 0}))
	check("backup_only no more", false)
	soon()
	check("not backup_only", false)
}

// Checks of servers that go the way of the traffic get their replies on a director that stands
// by, too.
func TestStandbySteersChecks(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := r.steering()
	r.must(r.Set(Setting{Name: "backup_only", Value: 1}), r.Standby(in(time.Hour)))
	for _, f := range families {
		r.must(r.AddService(service(model.TCP, at(f.vip(9), 80), "wlc"))) // for the family to be in use
		c := f.checkOf(model.Server{Addr: f.serverAddr(0), Port: 80, Forward: model.Route}, 40000)
		r.must(s.Begin(c))
		t.Run(f.name, func(t *testing.T) {
			reply := testenv.TCP(c.Virtual.String(), c.Local.String(), "SA")
			goesOn("", reply.From(c.Remote.String())).judge(t, reply.Frame(), r.fromServer(reply))
			reasons := r.reasonsOf(func() { r.fromServer(reply.Turned()) })
			if reasons["drop check returned"] != 1 {
				t.Errorf("a check that a server forwarded: %v", reasons)
			}
		})
	}
}
