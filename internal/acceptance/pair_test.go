// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"imbang/internal/daemon/api"
	"imbang/internal/lab/topology"
)

// Two daemons of a pair: orders travel, also past a killed daemon; different configurations are
// an alarm, and a push ends it; a director that sees fewer servers yields while the other one
// is reached.
func TestPair(t *testing.T) {
	const services = checkEvery + `
services:
  - {name: web, virtual: "VIP:80", checks: [web], servers: [{name: web1, address: S1}, {name: web2, address: S2, weight: 2}]}
`
	key := replicationKey(t)
	section := func(listen, peer string) string {
		return fmt.Sprintf("pair: {listen: %s, peer: %s, key_file: %s, hold: 1 s}\n", listen, peer, key)
	}
	a, b := newKeeper(t, 2, services), newKeeper(t, 2, services)
	connectReplicating(t, a.Director, b.Director)
	ofA, ofB := section(replicatingA, replicatingB), section(replicatingB, replicatingA)
	a.configure(ofA + services)
	b.configure(ofB + services)
	if plan := a.do("plan"); !strings.Contains(plan, "start the link of the pair, 192.168.78.1:8791 with 192.168.78.2:8791") {
		t.Errorf("plan:\n%s", plan)
	}
	a.do("reload")
	b.do("reload")
	linked := func(k *keeper) func() bool {
		return func() bool {
			p := k.status().Pair
			return p != nil && p.Reached && p.Same != nil && *p.Same && p.Orders
		}
	}
	for _, k := range []*keeper{a, b} {
		k.await("the link", linked(k))
	}

	server := func(k *keeper, i int) *api.Server { return &k.status().Services[0].Servers[i] }
	a.do("drain", "web1", "--reason", "disk")
	b.await("the order on the other one", func() bool { d := server(b, 0).Drain; return d != nil && d.Reason == "disk" && d.By == "root" })
	b.do("weight", "-t", b.Virtual(topology.IPv4).String()+":80", "-r", b.Servers[1].Addr[topology.IPv4].String()+":80", "--set", "7")
	a.await("and back", func() bool { return server(a, 1).WeightOrder != nil && server(a, 1).Weight == 7 })
	b.end(syscall.SIGKILL)
	a.do("enable", "web1")
	a.await("b is not reached", func() bool { return !a.status().Pair.Reached })
	b.start()
	b.await("what was ordered while it was down", func() bool { return server(b, 0).Drain == nil && server(b, 1).Weight == 7 })
	a.do("enable", "web2")
	b.await("orders end", func() bool { return server(b, 1).Weight == 2 })

	b.configure(ofB + strings.Replace(services, "weight: 2", "weight: 3", 1))
	b.do("reload")
	a.await("the alarm", a.hasAlarm("pair-configuration", "services[web].servers["+a.Servers[1].Addr[topology.IPv4].String()+"].weight: 2 here, 3 there"))
	if got := imbang(t, a.Director, "", "peer", "diff"); got.status != 1 || !strings.Contains(got.stdout, ".weight  2 here  3 there") {
		t.Errorf("%+v", got)
	}
	if got := imbang(t, a.Director, "", "peer", "push"); got.status != 2 || !strings.Contains(got.stderr, "add --yes") {
		t.Errorf("%+v", got)
	}
	file := func() string {
		text, err := os.ReadFile(b.config)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// A file that was not applied is not replaced.
	applied := file()
	b.write(applied + "# more\ntimeouts: {udp: 10 s}\n")
	if got := imbang(t, a.Director, "", "peer", "push", "--yes"); got.status != 3 || !strings.Contains(got.stderr, "has changed since it was applied") {
		t.Errorf("%+v", got)
	}
	b.write(applied)
	if got := a.do("peer", "push", "--dry-run"); !strings.Contains(got, "from weight 3 to weight 2") || file() != applied {
		t.Errorf("%s", got)
	}
	a.do("peer", "push", "--yes")
	if got := file(); !strings.Contains(got, "weight: 2") || !strings.Contains(got, "listen: "+replicatingB) {
		t.Errorf("the file of b:\n%s", got)
	}
	if text, err := os.ReadFile(b.config + ".before"); err != nil || string(text) != applied {
		t.Errorf("%s, %v", text, err)
	}
	if got := server(b, 1).Weight; got != 2 {
		t.Errorf("weight %d", got)
	}
	a.await("the alarm ends", a.hasNoAlarm("pair-configuration"))
	if got := a.do("peer", "diff"); !strings.Contains(got, "has the same configuration") {
		t.Errorf("%s", got)
	}
	// A configuration that does not apply there changes nothing.
	pushed := file()
	a.configure(ofA)
	a.do("reload", "--force")
	if got := imbang(t, a.Director, "", "peer", "push", "--yes"); got.status != 3 || !strings.Contains(got.stderr, "2 of 2 servers would be deleted") || file() != pushed {
		t.Errorf("%+v", got)
	}
	a.configure(ofA + services)
	a.do("reload")

	yields := func(k *keeper) func() bool { return func() bool { return k.status().Pair.Yields } }
	doesNot := func(k *keeper) func() bool { return func() bool { return !k.status().Pair.Yields } }
	a.kill(0)
	a.await("the director that sees fewer servers yields", yields(a))
	if s := b.status().Pair; s.Yields {
		t.Errorf("%+v", s)
	}
	b.await("the other one knows of it", func() bool { return b.status().Pair.Peers == "fewer" })
	if text := a.do("status"); !strings.Contains(text, "it sees more servers up; THIS DIRECTOR YIELDS to it") {
		t.Errorf("%s", text)
	}
	b.kill(0)
	a.await("both see as many", doesNot(a))
	b.revive(0)
	a.await("it yields again", yields(a))
	b.stop()
	a.await("not without the link", doesNot(a))
	a.await("the alarm of the link", a.hasAlarm("pair-link", "the director 192.168.78.2:8791 is not reached"))
	if got := imbang(t, a.Director, "", "peer", "status"); got.status != 1 || !strings.Contains(got.stdout, "NOT REACHED for ") {
		t.Errorf("%+v", got)
	}
}
