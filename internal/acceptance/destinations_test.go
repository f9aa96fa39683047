// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// The study in the documentation, cut short: what looks at the destination
// uses every server, because there are many destinations.
func TestLabRunOverManyAddresses(t *testing.T) {
	needRoot(t)
	out := filepath.Join(t.TempDir(), "out")
	path, err := filepath.Abs("../../docs/caches.yaml")
	if err != nil {
		t.Fatal(err)
	}
	must(t, nil, "", "lab", "run", path, "--quick", "--rates", "200", "--schedulers", "dh,lblc", "--out", out)
	stored, err := record.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Samples) != 2 {
		t.Fatalf("%d samples, want one of dh and one of lblc", len(stored.Samples))
	}
	for _, s := range stored.Samples {
		if s.Error != "" {
			t.Errorf("%s: %s", s.Cell, s.Error)
			continue
		}
		if s.Load.Targets != 200 || s.Load.Status.Success == 0 || len(s.Load.PerServer) != 3 {
			t.Errorf("%s: %d good replies from %d addresses by %v, want some from 200 by 3 servers",
				s.Cell, s.Load.Status.Success, s.Load.Targets, s.Load.PerServer)
		}
	}
}

// dh sends what goes to one address to one server, of one service over all
// addresses.
func TestAddressesKeepTheirServers(t *testing.T) {
	needRoot(t)
	const addresses, servers = 20, 3
	c := behind(t, addresses, servers)
	e, _ := engine.New("imbang", executable)
	for _, f := range topology.Families {
		t.Run(string(f), func(t *testing.T) {
			i, err := e.Start(t.Context(), engine.Setup{Cluster: c, Family: f, Servers: c.Servers, Weights: []int{1, 1, 1}, Scheduler: "dh"})
			if err != nil {
				t.Fatal(err)
			}
			defer must(t, c.Director, "", "detach")
			used := map[string]int{}
			for _, target := range i.Targets() {
				per := answers(t, c.Clients[0], f, target)
				if len(per) != 1 {
					t.Errorf("%s is answered by %v, want one server", target, per)
				}
				for name := range per {
					used[name]++
				}
			}
			if len(used) != servers {
				t.Errorf("addresses of each server: %v, want some of all %d", used, servers)
			}
		})
	}
}

// answers asks an address a few times, each time as another client, and says
// who answered how often.
func answers(t *testing.T, from topology.Client, f topology.Family, target netip.AddrPort) map[string]int {
	t.Helper()
	const asked = 6
	r, err := load.Run(t.Context(), load.Plan{
		Target: target, ServerHeader: server.Header, Rate: 500, Connections: asked, Timeout: patience,
		Clients: []load.Client{{Namespace: from.Namespace.Path(), Sources: from.Addresses[f]}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status.Success != asked {
		t.Errorf("%s: %d of %d replies: %+v", target, r.Status.Success, asked, r.Loss)
	}
	return r.PerServer
}

// behind builds a cluster of model servers behind virtual addresses of both
// families.
func behind(t *testing.T, addresses, servers int) *topology.Cluster {
	t.Helper()
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.Build(run, topology.Spec{
		Families: topology.Families, ClientNamespaces: 1, ClientAddresses: 10, Servers: servers, VirtualAddresses: addresses,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	spec := study.Server{Kind: study.Model, Page: 100, Distribution: "constant", Service: time.Millisecond, Concurrency: 16, Speed: 1}
	for _, place := range c.Servers {
		s, err := server.Start(place.Namespace, place.Name, spec, dir, labExecutable())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		if err := s.WaitReady(t.Context(), c.Clients[0].Namespace, netip.AddrPortFrom(place.Addr[topology.IPv4], server.Port)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
