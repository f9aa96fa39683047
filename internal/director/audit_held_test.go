// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj"
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
	confirmed, err := x.confirmControlled(t.Context(), found)
	x.must(err)
	if len(confirmed) != 0 {
		t.Errorf("a template that packets hold is found: %+v", confirmed)
	}
	// Beside a packet that has gone, one connection too many that stays.
	template := found[0]
	_, err = x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CONTROLLED, Flow: template.flow, Server: template.id, Controlled: 1})
	x.must(err)
	found[0].a, found[0].b = 3, 0
	if confirmed, err = x.confirmControlled(t.Context(), found); err != nil || len(confirmed) != 1 || confirmed[0].a != 1 {
		t.Errorf("one that counts too many at each look: %+v, %v", confirmed, err)
	}
	// One that is gone is none.
	template.a, template.b, template.id = 3, 0, template.id+1
	if confirmed, err = x.confirmControlled(t.Context(), []suspect{template}); err != nil || len(confirmed) != 0 {
		t.Errorf("another server's: %+v, %v", confirmed, err)
	}
}

// A pass has read a connection, and its template when that connection had ended; or the template when
// another was opened. A template that does count fewer or more than there are is found.
func TestAuditOfTemplateReadLate(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	r.addService(s, 1)
	for i := range 3 {
		r.establish(at("10.10.0.2", 1234+i), vip)
	}
	var template suspect
	r.must(r.eachEntry(t.Context(), 0, func(e *entry) error {
		if e.Flow.Template != 0 {
			template = suspect{kind: AuditControlled, flow: e.Flow, id: e.Server, number: e.Index}
		}
		return nil
	}))
	for _, c := range []struct {
		counts int32 // the template
		a, b   int64 // a pass has seen
		found  int
	}{
		{3, 2, 3, 0}, // one was opened meanwhile
		{3, 3, 4, 0}, // one has ended
		{3, 3, 2, 0}, // one was opened behind the pass
		{4, 4, 3, 1},
		{5, 4, 2, 1},
		{2, 2, 3, 1},
		{2, 2, 4, 1},
		{1, 2, 3, 1},
	} {
		now, err := r.controls(template)
		r.must(err)
		_, err = r.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CONTROLLED, Flow: template.flow, Server: template.id,
			Controlled: c.counts - int32(now)})
		r.must(err)
		template.a, template.b = c.a, c.b
		if confirmed, err := r.confirmControlled(t.Context(), []suspect{template}); err != nil || len(confirmed) != c.found {
			t.Errorf("%+v: %d are found, %v", c, len(confirmed), err)
		}
	}
}
