// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Each pass meets another packet that holds a template without a connection: that is
// no fault. An id that is not held is one.
func TestRaceAuditOfHeldTemplate(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	s.Key.Protocol, s.Flags, s.Timeout = model.UDP, model.Persistent|model.OnePacket, time.Minute
	x.addService(s, 1)
	packet := testenv.UDP(client1, vip, "x")
	x.fromClientOn(cpuB, packet) // makes the template
	var passes [2]auditPass
	for i := range passes {
		a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_OPEN, packet)
		x.onCPU(cpuB, func() error { // a whole pass waits for packets in the end
			r := auditReader{d: x.Director, pass: &passes[i], ctx: t.Context()}
			for _, step := range []func() error{r.settings, r.readClock, r.readIDs, r.countsBefore, r.connections} {
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		})
		a.finish()
	}
	var found []suspect
	for s := range passes[0].suspects {
		if _, both := passes[1].suspects[s]; both && s.kind == AuditControlled {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the passes suspect %+v: the test shows nothing", found)
	}
	confirmed, err := x.confirmHeld(found)
	x.must(err)
	if len(confirmed) != 0 {
		t.Errorf("a template that packets hold is found: %+v", confirmed)
	}
	// Beside a packet that has gone, one connection too many that stays.
	template := found[0]
	found[0].a, found[0].b = 3, -1
	if confirmed, err = x.confirmHeld(found); err != nil || len(confirmed) != 1 || confirmed[0].a != 0 {
		t.Errorf("one that counts too many at each look: %+v, %v", confirmed, err)
	}
	// One that is gone is none.
	template.a, template.b, template.id = 3, -1, template.id+1
	if confirmed, err = x.confirmHeld([]suspect{template}); err != nil || len(confirmed) != 0 {
		t.Errorf("another server's: %+v, %v", confirmed, err)
	}
}
