// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/topology"
)

// A director whose services another command deleted yields to its peer. If both lack them, neither
// does, and nothing moves again.
func TestPairServicesDeleted(t *testing.T) {
	const services = checkEvery + `
services:
  - {name: web, virtual: "VIP:80", checks: [web], servers: [{name: web1, address: S1}, {name: web2, address: S2}]}
  - {name: plain, virtual: "VIP:81", servers: [{name: plain1, address: S1}]}
`
	key := replicationKey(t)
	section := func(listen, peer string) string {
		return fmt.Sprintf("pair: {listen: %s, peer: %s, key_file: %s, hold: 1 s}\n", listen, peer, key)
	}
	a, b := newKeeper(t, 2, services), newKeeper(t, 2, services)
	connectReplicating(t, a.Director, b.Director)
	a.configure(section(replicatingA, replicatingB) + services)
	b.configure(section(replicatingB, replicatingA) + services)
	a.do("reload")
	b.do("reload")
	state := func(k *keeper, yields bool, peers string) func() bool {
		return func() bool {
			p := k.status().Pair
			return p != nil && p.Reached && p.Yields == yields && p.Peers == peers
		}
	}
	for _, k := range []*keeper{a, b} {
		k.await("both see as many", state(k, false, "as many"))
	}
	a.do("ipvsadm", "-C")
	a.await("the alarm", a.hasAlarm("service-missing", "web (10.20.0.1:80/tcp), plain (10.20.0.1:81/tcp). imbang reload adds them"))
	a.await("the director without services yields", state(a, true, "more"))
	if text := a.do("peer", "status"); !strings.Contains(text, "0 of 2 servers up here") || !strings.Contains(text, "0 of 1 servers up here") {
		t.Errorf("%s", text)
	}
	// Only one service is back: the other director still sees more.
	a.do("ipvsadm", "-A", "-t", "10.20.0.1:81", "-s", "rr")
	a.do("ipvsadm", "-a", "-t", "10.20.0.1:81", "-r", a.Servers[0].Addr[topology.IPv4].String()+":81", "-m")
	a.await("one is back", a.hasAlarm("service-missing", "web (10.20.0.1:80/tcp). imbang reload adds them"))
	time.Sleep(3 * time.Second)
	if !state(a, true, "more")() {
		t.Errorf("%+v", a.status().Pair)
	}
	b.do("ipvsadm", "-C")
	b.await("the alarm", b.hasAlarm("service-missing", "web"))
	b.await("b yields, which lacks more", state(b, true, "more"))
	a.await("a does not", state(a, false, "fewer"))
	a.do("ipvsadm", "-C")
	for _, k := range []*keeper{a, b} {
		k.await("neither yields", state(k, false, "as many"))
	}
	time.Sleep(5 * time.Second)
	for _, k := range []*keeper{a, b} {
		if got := strings.Count(k.do("events", "-n", "200"), "yields to the director"); got != 1 {
			t.Errorf("yielded %d times:\n%s", got, k.do("events", "-n", "200"))
		}
		k.do("reload")
	}
	for _, k := range []*keeper{a, b} {
		k.await("no alarm", k.hasNoAlarm("service-missing"))
		k.await("both see as many", state(k, false, "as many"))
	}
}
