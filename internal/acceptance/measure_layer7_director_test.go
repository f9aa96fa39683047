// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/place"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/topology"
)

// way is how clients reach a node.
type way struct {
	name string
	to   netip.AddrPort
	cmd  *exec.Cmd // its clients, which are stopped while it is another way's turn
	end  func() float64
}

// Turns are short, so that what else the machine does is alike in those that are compared.
const (
	turn = 200 * time.Millisecond
	// warm is from the moment when the clients go on to the first reading.
	warm = 20 * time.Millisecond
	// A round is of so many turns of each way: a reading of what the machine idles is rough.
	turnsOfRound = 5
)

// spent is CPU time: of the whole machine, and of it HAProxy's.
type spent struct {
	machine, haproxy time.Duration
	requests         int
}

func (s *spent) add(o spent) {
	s.machine, s.haproxy, s.requests = s.machine+o.machine, s.haproxy+o.haproxy, s.requests+o.requests
}

// machineEach and haproxyEach are us a request.
func (s spent) machineEach() float64 {
	return float64(s.machine.Nanoseconds()) / 1e3 / float64(s.requests)
}
func (s spent) haproxyEach() float64 {
	return float64(s.haproxy.Nanoseconds()) / 1e3 / float64(s.requests)
}

// costed is the node that is measured.
type costed struct {
	worker int
	socket *runtime.Client
}

// reading is what was spent up to now.
func (c costed) reading(t *testing.T) (m measure.Machine, own time.Duration, requests int) {
	t.Helper()
	info, err := c.socket.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if requests, err = strconv.Atoi(info["CumReq"]); err != nil {
		t.Fatal(err)
	}
	if own, err = measure.ProcessTime(c.worker); err != nil {
		t.Fatal(err)
	}
	if m, err = measure.ReadMachine(); err != nil {
		t.Fatal(err)
	}
	return m, own, requests
}

// take gives a way's clients a turn.
func (c costed) take(t *testing.T, w way) spent {
	t.Helper()
	signal := func(s syscall.Signal) {
		if err := w.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGCONT)
	time.Sleep(warm)
	before, own, requests := c.reading(t)
	time.Sleep(turn - warm)
	after, ownAfter, requestsAfter := c.reading(t)
	signal(syscall.SIGSTOP)
	return spent{after.WorkSince(before), ownAfter - own, requestsAfter - requests}
}

// reusePorts has a client's ports be used again at once: some are of connections that it has closed first.
func reusePorts() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_tw_reuse", []byte("1"), 0) }

// pin has the threads of a process use one CPU, and what they start.
func pin(t *testing.T, pid, cpu int) {
	t.Helper()
	if out, err := exec.Command("taskset", "-a", "-p", "-c", strconv.Itoa(cpu), strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("taskset: %v: %s", err, out)
	}
}

// What a request costs with a director in front of a node, beside the same node alone: the clients
// are in a network with both. It is all of the hop: the director's host receives, changes and sends
// packets. Two ratios: of the CPU time of the whole machine, in which clients and servers are; and of
// the proxy's own with and without what a director adds to the machine, which no client and server
// makes look better. The node alone once more says how far two equal ways are apart. The way through the same
// host as a router is no baseline without a director: its packets pass the director's programs, too.
func TestMeasureLayer7Director(t *testing.T) {
	ns := newNodes(t, 1)
	http := ns.httpClient(t)
	ns.await("the node is up", 10*time.Second, func() bool { return ns.who(http) == "n1" })
	alone := ns.beside(topology.IPv4, 0)
	ways := []way{{name: "alone", to: alone}, {name: "alone, again", to: alone}, {name: "router", to: ns.routed(topology.IPv4, 0)}}
	for _, m := range nodeMethods[:3] {
		ways = append(ways, way{name: m.name, to: netip.AddrPortFrom(ns.Virtual(topology.IPv4), m.port)})
	}
	p := ns.all[0].status().Proxy
	if p == nil || len(p.Workers) != 1 {
		t.Fatalf("%+v", p)
	}
	var dir string
	if err := ns.all[0].host.Do(func() (err error) { dir, err = place.ProxyDir(); return err }); err != nil {
		t.Fatal(err)
	}
	node := costed{p.Workers[0], &runtime.Client{Path: supervise.RuntimeSocket(dir)}}
	client := haproxytest.In(t, ns.Clients[0].Namespace)
	if err := client.Do(reusePorts); err != nil {
		t.Fatal(err)
	}
	pin(t, node.worker, 1)
	pin(t, os.Getpid(), 0)
	var rows []layer7Row
	for _, kind := range []struct {
		name      string
		arguments []string
	}{
		{"kept connections", nil},
		{"a connection for each request", []string{"-H", "Connection: close"}},
	} {
		for i := range ways {
			w := &ways[i]
			w.cmd, w.end = wrk(t, client, append(append([]string{"wrk", "-t1", "-c20", "-d24h"}, kind.arguments...), "http://"+w.to.String()+"/")...)
			node.take(t, *w)
		}
		got := make([][]spent, len(ways)) // of a way and a round
		for i := range got {
			got[i] = make([]spent, *rounds)
		}
		for n := range *rounds * turnsOfRound {
			for i := range ways {
				i := (i + n) % len(ways)
				got[i][n/turnsOfRound].add(node.take(t, ways[i]))
			}
		}
		for _, w := range ways {
			_ = w.cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(warm) // or another thread than the one that waits gets the signal
			_ = w.cmd.Process.Signal(syscall.SIGINT)
			w.end()
		}
		for i, w := range ways {
			var machine, haproxy, added, ofMachine, ofProxy []float64
			for round, s := range got[i] {
				alone := got[0][round]
				more := s.machineEach() - alone.machineEach()
				machine, haproxy, added = append(machine, s.machineEach()), append(haproxy, s.haproxyEach()), append(added, more)
				ofMachine = append(ofMachine, alone.machineEach()/s.machineEach())
				ofProxy = append(ofProxy, alone.haproxyEach()/(alone.haproxyEach()+more))
			}
			whole, rated, plus := shareOf(machine), shareOf(ofMachine), shareOf(added)
			rows = append(rows, layer7Row{Case: kind.name, Name: w.name, CPU: shareOf(haproxy), Ratio: shareOf(ofProxy), Machine: &whole, MachineRatio: &rated, Added: &plus})
		}
	}
	noteLayer7(t, func(all *layer7Result) *[]layer7Row { return &all.Hops }, rows)
}
