// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/topology"
)

// way is how clients reach a node.
type way struct {
	name   string
	to     netip.AddrPort
	tunnel bool      // the node takes headers of tunnels off while it is this way's turn
	cmd    *exec.Cmd // its clients, which are stopped while it is another way's turn
	end    func() float64
}

func (w *way) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Turns are short, so that what else the machine does is alike in those that are compared.
const (
	turn = 200 * time.Millisecond
	// warm is from the moment when the clients go on to the first reading.
	warm = 20 * time.Millisecond
	// rest is for packets that are under way when clients are stopped, with acknowledgements that wait for 40 ms.
	rest = 60 * time.Millisecond
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
	host   *host.Namespace
}

// endsTunnels has the node take headers of tunnels off, or not: a program that does it looks at all packets of a device,
// where Linux's tunnel devices see those of tunnels alone.
func (c costed) endsTunnels(t *testing.T, on bool) {
	t.Helper()
	if on {
		if err := probe.Decapsulate(c.host, "eth0"); err != nil {
			t.Fatal(err)
		}
		return
	}
	err := c.host.Do(func() error {
		all, err := host.Classifiers("decapsulate")
		for _, one := range all {
			err = errors.Join(err, host.RemoveClassifier(one))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if w.tunnel {
		c.endsTunnels(t, true)
		defer c.endsTunnels(t, false)
	}
	w.signal(t, syscall.SIGCONT)
	time.Sleep(warm)
	before, own, requests := c.reading(t)
	time.Sleep(turn - warm)
	after, ownAfter, requestsAfter := c.reading(t)
	w.signal(t, syscall.SIGSTOP)
	time.Sleep(rest)
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

// addRouter is one more way to a node: a host between that forwards in the kernel, with links of the same kinds as
// the director's, and no programs.
func (ns *nodes) addRouter(i int) netip.AddrPort {
	ns.t.Helper()
	router := haproxytest.New(ns.t).Namespace()
	fabric, _ := ns.Uplink()
	client, node := ns.Clients[0].Namespace, ns.Servers[i].Namespace
	errs := []error{router.Sysctl("net.ipv4.ip_forward", "1")}
	for _, side := range []struct {
		end                      *host.Namespace
		device, port, mac, outer string // mac is the router's
		network, of              string // addresses of the router and of the end
	}{
		{client, "eth1", "ext2", "02:00:00:0a:09:01", "02:00:00:0a:09:02", "10.90.1.1/24", "10.90.1.2/24"},
		{node, "eth2", "int2", "02:00:00:0a:09:03", "02:00:00:0a:09:04", "10.90.2.1/24", routed.Addr().String() + "/24"},
	} {
		gateway, own := netip.MustParsePrefix(side.network), netip.MustParsePrefix(side.of)
		errs = append(errs,
			host.Connect(host.End{NS: router, Name: side.port, MAC: side.mac}, host.End{NS: fabric, Name: side.port}, host.LinkOptions{}),
			fabric.Share(side.port, host.End{NS: side.end, Name: side.device, MAC: side.outer}),
			router.AddAddresses(side.port, gateway), side.end.AddAddresses(side.device, own),
			router.AddNeighbours(side.port, side.outer, own.Addr()), side.end.AddNeighbours(side.device, side.mac, gateway.Addr()))
	}
	there, back := netip.MustParsePrefix("10.90.2.0/24"), netip.MustParsePrefix("10.90.1.0/24")
	errs = append(errs,
		client.AddRoutes(host.Route{Dst: there, Via: netip.MustParseAddr("10.90.1.1")}),
		node.AddRoutes(host.Route{Dst: back, Via: netip.MustParseAddr("10.90.2.1")}))
	if err := errors.Join(errs...); err != nil {
		ns.t.Fatal(err)
	}
	return routed
}

// What a request costs with a director in front of a node, beside the same node alone: the clients
// are in a network with both. It is all of the hop: the director's host receives, changes and sends
// packets. Two ratios: of the CPU time of the whole machine, in which clients and servers are; and of
// the proxy's own with and without what a director adds to the machine, which no client and server
// makes look better. The node alone is there twice: the others are compared with the mean of both, and the second
// one with the first, which says how far two equal ways are apart. A router is a hop without a director.
func TestMeasureLayer7Director(t *testing.T) {
	ns := newNodes(t, 1)
	http := ns.httpClient(t)
	ns.await("the node is up", func() bool { return ns.who(http) == "n1" })
	ways := []way{{name: "alone"}, {name: "alone, again"}, {name: "router", to: ns.addRouter(0)}}
	for i := range ways[:2] {
		ways[i].to = ns.beside(topology.IPv4, 0)
	}
	for _, m := range nodeMethods[:3] {
		ways = append(ways, way{name: m.name, to: netip.AddrPortFrom(ns.Virtual(topology.IPv4), m.port), tunnel: m.forward == "tunnel"})
	}
	p := ns.all[0].status().Proxy
	if p == nil || len(p.Workers) != 1 {
		t.Fatalf("%+v", p)
	}
	node := costed{p.Workers[0], runtimeOf(t, ns.all[0].host), ns.Servers[0].Namespace}
	client := haproxytest.In(t, ns.Clients[0].Namespace)
	if err := client.Do(reusePorts); err != nil {
		t.Fatal(err)
	}
	ns.stop() // the daemon, whose checks would find the node down where its tunnels do not end
	node.endsTunnels(t, false)
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
			node.endsTunnels(t, w.tunnel) // wrk ends where its first connection fails
			w.cmd, w.end = wrk(t, client, append(append([]string{"wrk", "-t1", "-c20", "-d24h"}, kind.arguments...), "http://"+w.to.String()+"/")...)
			time.Sleep(rest)
			w.signal(t, syscall.SIGSTOP)
			time.Sleep(rest)
			node.endsTunnels(t, false)
			node.take(t, *w)
		}
		got := make([][]spent, len(ways)) // of a way and a round
		for i := range got {
			got[i] = make([]spent, *rounds)
		}
		for n := range *rounds * turnsOfRound {
			for _, i := range rand.Perm(len(ways)) {
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
				alone, own := got[0][round].machineEach(), got[0][round].haproxyEach()
				if i > 1 {
					alone, own = (alone+got[1][round].machineEach())/2, (own+got[1][round].haproxyEach())/2
				}
				more := s.machineEach() - alone
				machine, haproxy, added = append(machine, s.machineEach()), append(haproxy, s.haproxyEach()), append(added, more)
				ofMachine = append(ofMachine, alone/s.machineEach())
				ofProxy = append(ofProxy, own/(own+more))
			}
			whole, rated, plus := shareOf(machine), shareOf(ofMachine), shareOf(added)
			rows = append(rows, layer7Row{
				Case: kind.name, Name: w.name, CPU: shareOf(haproxy), Ratio: shareOf(ofProxy), Machine: &whole, MachineRatio: &rated, Added: &plus,
				CPURounds: rounded(haproxy), MachineRounds: rounded(machine),
			})
		}
	}
	noteLayer7(t, func(all *layer7Result) *[]layer7Row { return &all.Hops }, rows)
}
