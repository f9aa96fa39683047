// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// builtImbang is the program.
func builtImbang(t *testing.T) string {
	t.Helper()
	imbang := filepath.Join(t.TempDir(), "imbang")
	if out, err := exec.Command("go", "build", "-o", imbang, "imbang/cmd/imbang").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return imbang
}

// Every engine with every scheduler carries requests over both families, and
// uses both servers. imbang's own are in the tests of its data plane.
func TestEnginesBalance(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	imbang := builtImbang(t)
	for _, name := range Names() {
		e, _ := New(name, imbang)
		if e.Schedulers() == nil { // no list of its own
			continue
		}
		_, err := e.Version(t.Context())
		if errors.Is(err, ErrUnavailable) { // this kernel cannot run it
			continue
		}
		if err != nil {
			t.Run(name, func(t *testing.T) { t.Skip(err) })
			continue
		}
		for _, scheduler := range e.Schedulers() {
			for _, f := range topology.Families {
				t.Run(name+"/"+scheduler+"/"+string(f), func(t *testing.T) {
					balances(t, e, Setup{
						Cluster: c, Family: f, Servers: c.Servers, Weights: []int{1, 1}, Scheduler: scheduler, Dir: t.TempDir(),
					})
				})
			}
		}
	}
}

// Engines that have servers balance over several virtual addresses as over one.
func TestEnginesBalanceSeveralAddresses(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 40)
	for name, scheduler := range map[string]string{"nftables": "rr", "haproxy-tcp": "roundrobin", "nginx-http": "rr"} {
		e, _ := New(name, "")
		if _, err := e.Version(t.Context()); err != nil {
			t.Log(err)
			continue
		}
		for _, f := range topology.Families {
			t.Run(name+"/"+string(f), func(t *testing.T) {
				balances(t, e, Setup{
					Cluster: c, Family: f, Servers: c.Servers, Weights: []int{1, 1}, Scheduler: scheduler, Dir: t.TempDir(),
				})
			})
		}
	}
}

func balances(t *testing.T, e Engine, s Setup) {
	i, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := i.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	client := s.Cluster.Clients[0]
	// Addresses far apart, even and odd: ip_hash of nginx looks at the
	// first three bytes, HAProxy takes the remainder.
	var sources []netip.Addr
	for i, a := range client.Addresses[s.Family] {
		if i%21 == 0 {
			sources = append(sources, a)
		}
	}
	const requests = 60
	r, err := load.Run(t.Context(), load.Plan{
		Targets: i.Targets(), ServerHeader: server.Header, Rate: 400, Connections: requests, Timeout: 20 * time.Second,
		Clients: []load.Client{{Namespace: client.Namespace.Path(), Sources: sources}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status.Success != requests {
		t.Errorf("%d of %d replies: %+v", r.Status.Success, requests, r.Loss)
	}
	if n := len(r.PerServer); n != 2 && s.Scheduler != "uri" { // there is one URL
		t.Errorf("%d of 2 servers answered: %v", n, r.PerServer)
	}
	if cpu, err := i.CPU(t.Context()); err != nil || cpu.Known && cpu.Time <= 0 {
		t.Errorf("CPU %+v, %v", cpu, err)
	}
}

// servers builds a cluster of two nginx servers behind virtual addresses.
func servers(t *testing.T, virtual int) *topology.Cluster {
	t.Helper()
	c, _ := serversIn(t, virtual)
	return c
}

// serversIn also returns the directory of the servers' files.
func serversIn(t *testing.T, virtual int) (*topology.Cluster, string) {
	t.Helper()
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.Build(run, topology.Spec{Families: topology.Families, ClientNamespaces: 1, ClientAddresses: 1200, Servers: 2, VirtualAddresses: virtual})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	dir := t.TempDir()
	for _, place := range c.Servers {
		s, err := server.Start(place.Namespace, place.Name, study.Server{Kind: study.Nginx, Page: 375}, dir, "")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(s.Stop)
		for _, f := range topology.Families {
			if err := s.WaitReady(t.Context(), c.Clients[0].Namespace, netip.AddrPortFrom(place.Addr[f], server.Port)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c, dir
}

func TestUnknownSchedulers(t *testing.T) {
	for name, want := range map[string]string{
		"nftables":           `nftables has no scheduler "wlc": it has random, rr, sh`,
		"nftables-flowtable": `nftables-flowtable has no scheduler "wlc": it has random, rr, sh`,
		"haproxy-tcp":        `haproxy-tcp has no scheduler "wlc": it has leastconn, random, roundrobin, source, static-rr`,
		"nginx-stream":       `nginx-stream has no scheduler "wlc": it has hash, least_conn, random, rr`,
	} {
		e, _ := New(name, "")
		if e.Schedulers() == nil {
			t.Errorf("%s has no schedulers", name)
		}
		_, err := e.Start(t.Context(), Setup{Cluster: &topology.Cluster{}, Scheduler: "wlc"})
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestKernelWithoutIPVS(t *testing.T) {
	err := kernelHasIPVS(t.Context())
	if err != nil && !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v; want an engine that is not available", err)
	}
}
