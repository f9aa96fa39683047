// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/topology"
)

var changesSeed = flag.Uint64("changes-seed", 1, "seed of TestRunRandomChanges; with -load-share the first of three")

// many gives the real servers so many more addresses, all of which answer.
func (k *keeper) many(n int) []netip.Addr {
	k.t.Helper()
	network := netip.MustParsePrefix("172.31.0.0/16")
	all := make([]netip.Addr, n)
	a := network.Addr().Next()
	for i := range all {
		all[i] = a
		a = a.Next()
	}
	s := k.Servers[0]
	if err := s.Namespace.AddRoutes(host.Route{Dst: network, Dev: "lo", Local: true}); err != nil {
		k.t.Fatal(err)
	}
	if err := k.Director.AddRoutes(host.Route{Dst: network, Via: s.Addr[topology.IPv4]}); err != nil {
		k.t.Fatal(err)
	}
	return all
}

// manyConfig is a configuration of servers with weights.
func manyConfig(scheduler string, weights map[netip.Addr]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "daemon: {max_removed: 100 %%}\nservices:\n  - name: web\n    virtual: VIP:80\n    scheduler: %s\n    servers:\n", scheduler)
	for _, a := range slices.SortedFunc(maps.Keys(weights), netip.Addr.Compare) {
		fmt.Fprintf(&b, "      - {address: %s, weight: %d}\n", a, weights[a])
	}
	return b.String()
}

// api is a client of the daemon.
func (k *keeper) api() (c *api.Client) {
	k.t.Helper()
	err := k.Director.Do(func() (err error) {
		c, err = api.NewClient()
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return c
}

// No request is lost while 1, 100 and 1000 servers change in one reload.
func TestRunReloadsMany(t *testing.T) {
	k := newKeeper(t, 1, "services: []\n")
	weights := map[netip.Addr]int{}
	for i, a := range k.many(1000) {
		weights[a] = 1 + i%3
	}
	k.configure(manyConfig("wrr", weights))
	k.do("reload")
	reload := func(n int) {
		t.Helper()
		left := n
		for _, a := range slices.SortedFunc(maps.Keys(weights), netip.Addr.Compare) {
			if left == 0 {
				break
			}
			weights[a] += 5
			left--
		}
		k.configure(manyConfig("wrr", weights))
		start := time.Now()
		got := k.do("reload")
		if want := fmt.Sprintf("%d servers changed", n); !strings.Contains(got, want) {
			t.Errorf("%q not in %.200s", want, got)
		}
		t.Logf("%d servers changed: %s", n, time.Since(start))
		time.Sleep(300 * time.Millisecond)
	}
	check := func(r *load.Result) {
		t.Helper()
		if r.Loss.Total() != 0 {
			t.Errorf("%d replies, lost %+v", r.Replies, r.Loss)
		}
	}
	sizes := []int{1, 100, 1000}
	if *loadShare == 0 {
		check(k.under(500, func() {
			for _, n := range sizes {
				reload(n)
			}
		}))
	} else {
		for _, n := range sizes {
			check(k.under(0, func() { reload(n) }))
			k.noteLoad(fmt.Sprintf("reload with %d changed servers", n), 0)
		}
	}
	k.do("audit")
}

// Two thousand operations at random, each checked against a model of the table, lose no
// request, and leave nothing for the auditor.
func TestRunRandomChanges(t *testing.T) {
	seeds := uint64(1)
	if *loadShare > 0 {
		seeds = 3
	}
	for seed := *changesSeed; seed < *changesSeed+seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { changeAtRandom(t, seed) })
	}
}

func changeAtRandom(t *testing.T, seed uint64) {
	k := newKeeper(t, 1, "services: []\n")
	random := rand.New(rand.NewPCG(seed, 16))
	pool := k.many(12)
	weights, orders, drained := map[netip.Addr]int{pool[0]: 1, pool[1]: 1}, map[netip.Addr]int{}, map[netip.Addr]bool{}
	k.configure(manyConfig("wlc", weights))
	k.do("reload")
	daemon, ctx := k.api(), t.Context()
	order := func(a netip.Addr, action string, weight int) {
		t.Helper()
		if _, err := daemon.Order(ctx, api.OrderRequest{Server: a.String(), Action: action, Weight: int32(weight), Reason: "test"}); err != nil {
			t.Fatalf("%s %s: %v", action, a, err)
		}
	}
	// One server always takes connections: else clients are refused, rightly.
	others := func() []netip.Addr {
		list := slices.SortedFunc(maps.Keys(weights), netip.Addr.Compare)
		return list[1:]
	}
	idle := func(a netip.Addr) {
		t.Helper()
		k.await("no active connections", func() bool {
			s, err := daemon.Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(s.Services[0].Servers, func(one api.Server) bool {
				return one.Address == netip.AddrPortFrom(a, 80).String() && one.Active > 0
			})
		})
	}
	const operations = 2000
	done := 0
	step := func() {
		list := others()
		switch what := random.IntN(10); {
		case what < 2 && len(weights) < len(pool): // add
			for _, a := range pool {
				if _, there := weights[a]; !there {
					weights[a] = random.IntN(5)
					break
				}
			}
		case what < 3 && len(list) > 0: // remove; its orders stay, for when it comes back
			a := list[random.IntN(len(list))]
			drained[a] = true
			order(a, api.ActionDrain, 0)
			idle(a) // as on Linux, packets of a deleted server's connections are dropped
			delete(weights, a)
		case what < 5 && len(list) > 0: // change
			weights[list[random.IntN(len(list))]] = random.IntN(5)
		case what < 7 && len(list) > 0:
			a := list[random.IntN(len(list))]
			orders[a] = random.IntN(6)
			order(a, api.ActionWeight, orders[a])
			return
		case what < 8 && len(list) > 0:
			a := list[random.IntN(len(list))]
			drained[a] = true
			order(a, api.ActionDrain, 0)
			return
		case len(list) > 0:
			a := list[random.IntN(len(list))]
			delete(orders, a)
			delete(drained, a)
			order(a, api.ActionEnable, 0)
			return
		}
		scheduler := []string{"wlc", "wrr", "sed", "rr"}[random.IntN(4)]
		k.configure(manyConfig(scheduler, weights))
		if _, err := daemon.Reload(ctx, api.ReloadRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	compare := func() {
		t.Helper()
		s, err := daemon.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got, want := map[string]int32{}, map[string]int32{}
		for _, one := range s.Services[0].Servers {
			got[one.Address] = one.Effective
		}
		for a, w := range weights {
			if ordered, is := orders[a]; is {
				w = ordered
			}
			if drained[a] {
				w = 0
			}
			want[netip.AddrPortFrom(a, 80).String()] = int32(w)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("after %d operations the servers are %v, want %v", done, got, want)
		}
		if len(s.Drift)+len(s.Alarms) > 0 {
			t.Fatalf("after %d operations: drift %v, alarms %v", done, s.Drift, s.Alarms)
		}
	}
	for done < operations {
		r := k.under(300, func() {
			for begin := time.Now(); done < operations && time.Since(begin) < 11*time.Second; done++ {
				step()
				compare()
			}
		})
		if r.Loss.Total() != 0 {
			t.Errorf("%d replies, lost %+v", r.Replies, r.Loss)
		}
	}
	k.noteLoad(fmt.Sprintf("%d random operations, seed %d", operations, seed), 0)
	k.do("audit")
}

// A device that is deleted and made again is attached again by itself, and an address
// that is flushed comes back; both raise alarms, and connections stay.
func TestRunKeepsDevices(t *testing.T) {
	k := newKeeper(t, 2, checkEvery+strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", ""))
	vip := netip.PrefixFrom(k.Virtual(topology.IPv4), 32).String()
	run := func(ns *host.Namespace, args ...string) {
		t.Helper()
		if o := finish(t, ns, exec.Command(args[0], args[1:]...), ""); o.status != 0 {
			t.Fatalf("%v: %+v", args, o)
		}
	}
	text := strings.Replace(k.text, "server_device:", "addresses: [{address: "+vip+", device: lo}], server_device:", 1)
	k.write(text)
	k.do("reload")
	run(k.Director, "ip", "address", "del", vip, "dev", "lo")
	back := k.await("the address", func() bool {
		return strings.Contains(finish(t, k.Director, exec.Command("ip", "address", "show", "dev", "lo"), "").stdout, vip)
	})
	t.Logf("the address came back after %s", back)
	if log := k.do("events"); !strings.Contains(log, vip) {
		t.Errorf("nothing of the address in\n%s", log)
	}
	// Clients come by a device that can be made again.
	const wan = "wan0"
	fabric, port := k.Uplink()
	mac, err := k.Director.LinkMAC(topology.ClientDevice)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(args ...string) []string {
		return strings.Split(strings.TrimSpace(finish(t, k.Director, exec.Command("ip", args...), "").stdout), "\n")
	}
	own := lines("-o", "-4", "address", "show", "dev", topology.ClientDevice)
	routes := lines("route", "show", "dev", topology.ClientDevice)
	neighbours := lines("neighbour", "show", "dev", topology.ClientDevice, "nud", "permanent")
	run(k.Director, "ip", "address", "flush", "dev", topology.ClientDevice)
	connect := func() {
		t.Helper()
		if err := fabric.Share(port, host.End{NS: k.Director, Name: wan, MAC: mac.String()}); err != nil {
			t.Fatal(err)
		}
		run(k.Director, "ip", "address", "add", strings.Fields(own[0])[3], "dev", wan)
		for _, line := range neighbours {
			f := strings.Fields(line)
			run(k.Director, "ip", "neighbour", "replace", f[0], "lladdr", f[2], "nud", "permanent", "dev", wan)
		}
		for _, line := range routes {
			if f := strings.Fields(line); len(f) > 2 && f[1] == "via" {
				run(k.Director, "ip", "route", "replace", f[0], "via", f[2], "dev", wan)
			}
		}
	}
	connect()
	k.end(syscall.SIGTERM)
	k.do("detach", "--keep-table")
	k.write(strings.Replace(k.text, "client_device: "+topology.ClientDevice, "client_device: "+wan, 1))
	k.start()
	k.await("an answer", func() bool { return ask(t, k.Cluster, 1, 500*time.Millisecond) == 1 })
	open := openSession(t, k.Cluster)
	if err := open.get(); err != nil {
		t.Fatal(err)
	}
	var outage time.Duration
	r := k.under(200, func() {
		gone := time.Now()
		if err := k.Director.DeleteLink(wan); err != nil {
			t.Error(err)
			return
		}
		k.await("the alarm", func() bool { return len(k.status().Alarms) > 0 })
		connect()
		back := time.Now()
		for n := 0; n == 0 && time.Since(back) < 5*time.Second; {
			n = ask(t, k.Cluster, 1, 100*time.Millisecond)
		}
		outage = time.Since(gone)
		t.Logf("an answer %s after the device came back, %s after it went", time.Since(back), outage)
	})
	t.Logf("lost %+v", r.Loss)
	// What was sent without a device is sent again by the clients' kernels.
	if lost := r.Loss.Total(); float64(lost) > float64(r.Replies+lost)*outage.Seconds()/12 {
		t.Errorf("%d replies, lost %+v in an outage of %s", r.Replies, r.Loss, outage)
	}
	k.noteLoad("device deleted and made again", outage)
	if err := open.get(); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	k.await("no alarm", func() bool { return len(k.status().Alarms) == 0 })
	if n := ask(t, k.Cluster, 20, patience); n != 20 {
		t.Errorf("%d of 20 requests answered", n)
	}
	k.do("audit")
}
