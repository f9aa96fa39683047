// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/model"
)

// connections are entered.
func TestReplicateACallThatMoved(t *testing.T) {
	r := newRig(t, small)
	s := sipService()
	r.addService(s, 1, 1)
	call := func(server string) model.Connection {
		c := replicaTemplate(s.Key, "10.10.0.2", server)
		c.Engine, c.EngineData = "sip", "a@h"
		return c
	}
	r.replicate(call("172.16.0.10:8080"))
	r.replicate(call("172.16.0.11:8080"))
	c := replica(s.Key, "10.10.0.2:5060", "172.16.0.11:8080")
	c.State, c.Control = "UDP", &model.Control{Kind: model.TemplateCall, Netmask: model.FullMask(model.IPv4), CallID: "a@h"}
	errs, err := r.Replicate([]model.Connection{c})
	r.must(err)
	if errs[0] != nil {
		t.Errorf("a connection of the call: %v", errs[0])
	}
	for _, one := range r.exported() {
		if one.Engine != "" && one.Flags&model.ConnInvalid == 0 && one.Server.String() != "172.16.0.11:8080" {
			t.Errorf("the call still goes to %s", one.Server)
		}
	}
}
