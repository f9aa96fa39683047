// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

// An edit that cannot be made is refused by name, and changes nothing.
func TestRefusals(t *testing.T) {
	r := newRig(t, small)
	s, none := tcpService(vip, "rr"), tcpService("10.20.0.9:80", "rr")
	r.addService(s, 1, 2)
	odd, engine := tcpService("10.20.0.8:80", "fastest"), tcpService("10.20.0.8:80", "rr")
	engine.Engine = "sip2"
	thresholds, absent := realServer(0, 1), realServer(9, 1)
	thresholds.Upper, thresholds.Lower = 3, 4
	at := func(addr string) model.Server {
		return model.Server{Addr: netip.MustParseAddr(addr), Port: 80, Weight: 1}
	}
	edited := s
	edited.Scheduler = "fastest"
	for _, c := range []struct {
		name string
		do   func() error
		want error
		says string // what the error names
	}{
		{"service that is there", func() error { return r.AddService(tcpService(vip, "wlc")) }, model.ErrServiceExists, "10.20.0.1:80/tcp"},
		{"scheduler that is not", func() error { return r.AddService(odd) }, model.ErrNoScheduler, "fastest"},
		{"persistence engine", func() error { return r.AddService(engine) }, model.ErrNoScheduler, "sip2"},
		{"edit a service that is not", func() error { return r.EditService(none) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"edit to a scheduler that is not", func() error { return r.EditService(edited) }, model.ErrNoScheduler, "fastest"},
		{"delete a service that is not", func() error { return r.DeleteService(none.Key) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"the service of another protocol", func() error { return r.DeleteService(service(model.UDP, vip, "").Key) }, model.ErrNoService, "10.20.0.1:80/udp"},
		{"zero a service that is not", func() error { return r.Zero(&none.Key) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"server of a service that is not", func() error { return r.AddServer(none.Key, absent) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"edit a server of a service that is not", func() error { return r.EditServer(none.Key, absent) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"delete a server of a service that is not", func() error { return r.DeleteServer(none.Key, absent.AddrPort()) }, model.ErrNoService, "10.20.0.9:80/tcp"},
		{"server that is there", func() error { return r.AddServer(s.Key, realServer(0, 9)) }, model.ErrServerExists, "172.16.0.10:8080"},
		{"edit a server that is not", func() error { return r.EditServer(s.Key, absent) }, model.ErrNoServer, "172.16.0.19:8080"},
		{"delete a server that is not", func() error { return r.DeleteServer(s.Key, absent.AddrPort()) }, model.ErrNoServer, "172.16.0.19:8080"},
		{"add with thresholds crossed", func() error { return r.AddServer(s.Key, thresholds) }, model.ErrThresholdRange, "172.16.0.10:8080"},
		{"edit with thresholds crossed", func() error { return r.EditServer(s.Key, thresholds) }, model.ErrThresholdRange, "172.16.0.10:8080"},
		{"multicast server", func() error { return r.AddServer(s.Key, at("224.0.0.1")) }, model.ErrInvalid, "224.0.0.1"},
		{"broadcast server", func() error { return r.AddServer(s.Key, at("255.255.255.255")) }, model.ErrInvalid, "255.255.255.255"},
		{"server at no address", func() error { return r.AddServer(s.Key, at("0.0.0.0")) }, model.ErrInvalid, "0.0.0.0"},
		{"link-local server", func() error { return r.AddServer(s.Key, at("fe80::1")) }, model.ErrInvalid, "fe80::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			before := r.listing()
			err := c.do()
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v that names %s", err, c.want, c.says)
			}
			if diff := cmp.Diff(before, r.listing(), ignoreTraffic); diff != "" {
				t.Errorf("this handle's table changed:\n%s", diff)
			}
			r.Director.table = nil
			if diff := cmp.Diff(before, r.listing(), ignoreTraffic); diff != "" {
				t.Errorf("the kernel's table changed:\n%s", diff)
			}
		})
	}
}

// A server that was deleted is as little there as one that never was.
func TestDeletedIsNotThere(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	server := realServer(0, 1)
	r.must(r.DeleteServer(s.Key, server.AddrPort()))
	for name, err := range map[string]error{
		"edit": r.EditServer(s.Key, server), "delete": r.DeleteServer(s.Key, server.AddrPort()),
	} {
		if !errors.Is(err, model.ErrNoServer) {
			t.Errorf("%s: %v, want %v", name, err, model.ErrNoServer)
		}
	}
}

func TestFlush(t *testing.T) {
	r := newRig(t, small)
	r.must(r.Flush())
	for i := range 5 {
		r.addService(tcpService(nthVIP(i), []string{"rr", "dh", "mh", "lblc", "wrr"}[i]), 1, 2, 3)
		r.establish(nthClient(i), nthVIP(i))
	}
	r.must(r.Flush())
	r.reopen()
	if got := r.listing(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	for name, n := range map[string]int{
		"services": r.entries(r.maps.Services), "bucket tables": r.entries(r.maps.BucketTables),
		"maglev tables": r.entries(r.maps.Maglevs), "localities": r.entries(r.maps.Localities),
	} {
		if n != 0 {
			t.Errorf("%d %s are left", n, name)
		}
	}
}
