// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/netip"
	"testing"

	"imbang/internal/model"
)

func TestServiceIDs(t *testing.T) {
	web := ServiceID{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))}
	for _, id := range []ServiceID{web, {Key: model.ServiceKey{Family: model.IPv6, Mark: 3}}, {Backend: "web"}, {Backend: "10.20.0.1:80"}} {
		if got, err := ParseServiceID(id.String()); err != nil || got != id {
			t.Errorf("%q is read as %+v, %v", id, got, err)
		}
	}
	for _, text := range []string{"", "backend", "backend ", "web"} {
		if got, err := ParseServiceID(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	if (ServiceID{Backend: "a"}).Compare(web) <= 0 || (ServiceID{Backend: "a"}).Compare(ServiceID{Backend: "b"}) >= 0 {
		t.Error("backends are not behind services, by name")
	}
}

// Orders of servers of backends are kept as others are.
func TestOrdersOfBackends(t *testing.T) {
	l := NewLedger()
	id := ServerID{ServiceID{Backend: "web"}, netip.MustParseAddrPort("172.16.0.2:8080")}
	l.Entries[id] = Entry{State{Maintenance: &Order{By: "root"}}, Version{Stamp: 5, Origin: "a"}}
	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if err != nil || got.Entries[id].Maintenance == nil {
		t.Errorf("%v, %v", got, err)
	}
}
