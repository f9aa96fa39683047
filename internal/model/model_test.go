// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"testing"
)

// A service's name is read back as the service.
func TestServiceKeys(t *testing.T) {
	for _, k := range []ServiceKey{
		AddrKey(TCP, netip.MustParseAddrPort("10.20.0.1:80")), AddrKey(SCTP, netip.MustParseAddrPort("10.20.0.1:0")),
		AddrKey(UDP, netip.MustParseAddrPort("[2001:db8::1]:53")), AddrKey(TCP, netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")),
		MarkKey(3, IPv4), MarkKey(4294967295, IPv6),
	} {
		if got, err := ParseServiceKey(k.String()); err != nil || got != k {
			t.Errorf("%s: %+v, %v", k, got, err)
		}
	}
	for _, s := range []string{"", "10.20.0.1:80", "10.20.0.1/tcp", "10.20.0.1:80/icmp", "fwmark", "fwmark 0", "fwmark -1", "fwmark 4294967296", "fwmark 3 IPv6", "fwmark 3/tcp"} {
		if k, err := ParseServiceKey(s); err == nil {
			t.Errorf("%q is %+v", s, k)
		}
	}
}

// Flags, kinds of templates and methods have names that are read back.
func TestNames(t *testing.T) {
	for _, name := range (ConnInactive | ConnHairpin | ConnReplied | ConnListed | ConnAdopted | ConnInvalid | ConnReplica).Names() {
		f, ok := ConnFlagNamed(name)
		if got := f.Names(); !ok || len(got) != 1 || got[0] != name {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	if f, ok := ConnFlagNamed("dead"); ok {
		t.Errorf("dead is %d", f)
	}
	for k := TemplatePort; k <= TemplateCall; k++ {
		if got, ok := TemplateKindNamed(k.String()); !ok || got != k {
			t.Errorf("%s: %v, %v", k, got, ok)
		}
	}
	for _, f := range []Forward{Masquerade, LocalNode, Tunnel, Route} {
		if got, ok := ForwardNamed(f.String()); !ok || got != f || !f.Known() {
			t.Errorf("%s: %v, %v", f, got, ok)
		}
	}
	if Forward(99).Known() {
		t.Error("there is no method 99")
	}
}
