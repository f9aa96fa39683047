// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/topology"
)

// way is how clients reach a node.
type way struct {
	name string
	to   netip.AddrPort
}

// spent is the CPU time of a request: of the whole machine, and of it HAProxy's.
type spent struct{ machine, haproxy float64 } // us

// spend measures it.
func (ns *nodes) spend(t *testing.T, worker int, to netip.AddrPort, arguments ...string) spent {
	t.Helper()
	client := haproxytest.In(t, ns.Clients[0].Namespace)
	own, err := measure.ProcessTime(worker)
	if err != nil {
		t.Fatal(err)
	}
	before, err := measure.ReadMachine()
	if err != nil {
		t.Fatal(err)
	}
	n := wrk(t, client, append(append([]string{"wrk", "-t1", "-c20", "-d1s"}, arguments...), "http://"+to.String()+"/")...)()
	after, err := measure.ReadMachine()
	if err != nil {
		t.Fatal(err)
	}
	ownAfter, err := measure.ProcessTime(worker)
	if err != nil {
		t.Fatal(err)
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / n }
	return spent{each(after.WorkSince(before)), each(ownAfter - own)}
}

// What a request costs with a director in front of a node, beside the same node alone: the clients
// are in a network with both. It is all of the hop: the director's host receives, changes and sends
// packets. Two ratios: of the CPU time of the whole machine, in which clients and servers are; and of
// the proxy's own with and without what a director adds to the machine, which no client and server
// makes look better. The way through the same host as a router says which part of it is the director's.
func TestMeasureLayer7Director(t *testing.T) {
	ns := newNodes(t, 1)
	http := ns.httpClient(t)
	ns.await("the node is up", 10*time.Second, func() bool { return ns.who(http) == "n1" })
	// The router is the host between without a director's work.
	ways := []way{{"alone", ns.beside(topology.IPv4, 0)}, {"router", ns.routed(topology.IPv4, 0)}}
	for _, m := range nodeMethods[:3] {
		ways = append(ways, way{m.name, netip.AddrPortFrom(ns.Virtual(topology.IPv4), m.port)})
	}
	p := ns.all[0].status().Proxy
	if p == nil || len(p.Workers) != 1 {
		t.Fatalf("%+v", p)
	}
	var rows []layer7Row
	for _, kind := range []struct {
		name      string
		arguments []string
	}{
		{"kept connections", nil},
		{"a connection for each request", []string{"-H", "Connection: close"}},
	} {
		got := make([][]spent, len(ways))
		for round := range *rounds {
			for i := range ways {
				i := (i + round) % len(ways)
				got[i] = append(got[i], ns.spend(t, p.Workers[0], ways[i].to, kind.arguments...))
			}
		}
		for i, w := range ways {
			var machine, haproxy, ofMachine, ofProxy []float64
			for round, s := range got[i] {
				alone := got[0][round]
				machine, haproxy = append(machine, s.machine), append(haproxy, s.haproxy)
				ofMachine = append(ofMachine, alone.machine/s.machine)
				ofProxy = append(ofProxy, alone.haproxy/(alone.haproxy+s.machine-alone.machine))
			}
			whole, rated := shareOf(machine), shareOf(ofMachine)
			rows = append(rows, layer7Row{Case: kind.name, Name: w.name, CPU: shareOf(haproxy), Ratio: shareOf(ofProxy), Machine: &whole, MachineRatio: &rated})
		}
	}
	noteLayer7(t, func(all *layer7Result) *[]layer7Row { return &all.Hops }, rows)
}
