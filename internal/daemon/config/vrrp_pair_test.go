// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/strictyaml"
)

// emptyFile checks a file without keys.
func emptyFile(t *testing.T) *checker {
	t.Helper()
	var d document
	tree, err := strictyaml.Decode("imbang.yaml", []byte("{}"), kind, &d)
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker()
	c.tree = tree
	return c
}

// What groups do by default follows from how connections are replicated, and from how many
// directors there can be.
func TestGroupOfPair(t *testing.T) {
	yes, no := true, false
	to := func(n int) *replicate.Config { return &replicate.Config{Role: "pair", To: make([]netip.AddrPort, n)} }
	router := func(peers ...string) vrrpRouterDoc {
		return vrrpRouterDoc{Device: "eth0", ID: 1, Peers: peers, Addresses: []string{"10.20.0.1/24"}}
	}
	for name, c := range map[string]struct {
		replication *replicate.Config
		doc         vrrpGroupDoc
		await       bool
		merge       time.Duration
		pair        bool
	}{
		"none":                 {doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router()}}},
		"a master":             {replication: &replicate.Config{Role: replicate.Master, To: make([]netip.AddrPort, 1)}, doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router()}}},
		"a pair":               {replication: to(1), doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router()}}, await: true, merge: defaultMerge, pair: true},
		"three":                {replication: to(2), doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router()}}, await: true, merge: defaultMerge},
		"a pair does not wait": {replication: to(1), doc: vrrpGroupDoc{AwaitSync: &no, Routers: []vrrpRouterDoc{router()}}, merge: defaultMerge, pair: true},
		"one waits":            {doc: vrrpGroupDoc{AwaitSync: &yes, Routers: []vrrpRouterDoc{router()}}, await: true},
		"one peer":             {doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router("10.20.0.12")}}, pair: true},
		"two peers":            {doc: vrrpGroupDoc{Routers: []vrrpRouterDoc{router("10.20.0.12", "10.20.0.13")}}},
	} {
		checker := emptyFile(t)
		checker.config.Replication = c.replication
		c.doc.Name = "web"
		checker.vrrp(&vrrpDoc{Groups: []vrrpGroupDoc{c.doc}})
		if len(checker.mistakes) > 0 {
			t.Errorf("%s: %v", name, checker.mistakes)
			continue
		}
		if g := checker.config.VRRP.Groups[0]; g.AwaitSync != c.await || g.Merge != c.merge || g.Pair != c.pair {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

// The director is tracked if the file has services, or says so.
func TestTrackDirector(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		doc      *bool
		services int
		director *Director
		want     *setup.Director
	}{
		"no services":   {},
		"services":      {services: 1, want: &setup.Director{}},
		"refused":       {doc: &no, services: 1},
		"required":      {doc: &yes, want: &setup.Director{}},
		"one device":    {doc: &yes, director: &Director{ClientDevice: "eth0", ServerDevice: "eth0"}, want: &setup.Director{Devices: []string{"eth0"}}},
		"two devices":   {services: 2, director: &Director{ClientDevice: "eth0", ServerDevice: "eth1"}, want: &setup.Director{Devices: []string{"eth0", "eth1"}}},
		"not a section": {director: &Director{ClientDevice: "eth0", ServerDevice: "eth1"}},
	} {
		checker := emptyFile(t)
		checker.config.Director, checker.config.VRRP = c.director, &setup.Setup{}
		checker.config.Services = make([]Service, c.services)
		checker.trackDirector(&vrrpDoc{TrackDirector: c.doc})
		got := checker.config.VRRP.Director
		if (got == nil) != (c.want == nil) || got != nil && !slices.Equal(got.Devices, c.want.Devices) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
