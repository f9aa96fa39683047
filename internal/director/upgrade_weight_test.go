// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// unweighedBuild is a build of before administrative weights, health and totals.
func unweighedBuild(t testing.TB) *ebpf.CollectionSpec {
	spec := anotherBuild(t, map[string][]string{"types.h": {
		"	__s32 administrative; /* the weight that the user set */\n", "",
		"	__u8 withheld;        /* share of it that health checks withhold [%]: 0 up, 100 down */\n	__u8 withheld_part;   /* and of a percent [1/253], below 253 */\n	__u8 pad3[2];         /* not pad: an upgrade refuses a field that became shorter */\n", "",
	}})
	for name := range origins {
		delete(spec.Maps, name)
	}
	return spec
}

// A build of before has the effective weights alone. Of one that came from there,
// they are the administrative ones, all servers are up, and totals begin with what
// listings showed.
func TestUpgradeFromBeforeWeights(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wrr")
	r.addService(s, 5, 4, 3)
	for i := range 6 {
		r.syn(nthClient(i), vip)
	}
	r.must(r.Zero(nil))
	for i := range 4 {
		r.syn(nthClient(6+i), vip)
	}
	r.must(r.SetHealth(s.Key, realServer(0, 0).AddrPort(), model.Down), r.SetHealth(s.Key, realServer(1, 0).AddrPort(), 50*model.Percent))
	before := r.status(s.Key)
	if before.Total != syns(10) || before.Stats != syns(4) {
		t.Fatalf("counted %+v and %+v", before.Total, before.Stats)
	}
	if _, steps, err := r.upgradeTo(unweighedBuild(t), "before", ""); err != nil {
		t.Fatalf("to the earlier build, after %q: %v", steps, err)
	}
	result, steps, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	if err != nil {
		t.Fatalf("after %q: %v", steps, err)
	}
	for _, m := range result.Plan.Maps {
		if (m.Name == "servers" || origins[m.Name] != "") != (m.Disposition == Converted) {
			t.Errorf("%s is %s: %q", m.Name, m.Disposition, m.Differences)
		}
	}
	r.open(Sizes{})
	after := r.status(s.Key)
	if after.Total != syns(4) || after.Stats != syns(4) {
		t.Errorf("the service counts %+v, in total %+v; want 4 each", after.Stats, after.Total)
	}
	for i, server := range after.Servers {
		if server.Weight != before.Servers[i].EffectiveWeight() || server.Health != model.Up || server.EffectiveWeight() != server.Weight {
			t.Errorf("%s: weight %d, health %s; want %d and up", server.Addr, server.Weight, server.Health, before.Servers[i].EffectiveWeight())
		}
		if server.Total != before.Servers[i].Stats || server.Stats != server.Total {
			t.Errorf("%s: counts %+v, in total %+v; want %+v", server.Addr, server.Stats, server.Total, before.Servers[i].Stats)
		}
	}
	for name, origin := range origins {
		if got, want := r.mapNamed(name).MaxEntries(), r.mapNamed(origin).MaxEntries(); got != want {
			t.Errorf("%s has room for %d, want %d", name, got, want)
		}
	}
	// And it goes on from there.
	r.syn(nthClient(10), vip)
	r.must(r.Zero(nil), r.SetHealth(s.Key, realServer(1, 0).AddrPort(), model.Down), r.SetHealth(s.Key, realServer(1, 0).AddrPort(), model.Up))
	if got := r.status(s.Key); got.Total != syns(5) || got.Stats != syns(0) || got.Servers[1].EffectiveWeight() != 2 {
		t.Errorf("then %+v", got)
	}
	r.wantClean("upgraded")
}

// percentBuild is a build whose health is in whole percents.
func percentBuild(t testing.TB) *ebpf.CollectionSpec {
	return anotherBuild(t, map[string][]string{"types.h": {
		"	__u8 withheld_part;   /* and of a percent [1/253], below 253 */\n	__u8 pad3[2];         /* not pad: an upgrade refuses a field that became shorter */\n", "	__u8 pad[3];\n",
	}})
}

// A health in whole percents, as an earlier build has it, stays. The earlier build has of a finer
// one the whole percents.
func TestUpgradeFromWholePercents(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wrr")
	r.addService(s, 253, 253, 253)
	at := func(i int) netip.AddrPort { return realServer(i, 0).AddrPort() }
	health := func() string {
		var words []string
		for _, one := range r.status(s.Key).Servers {
			words = append(words, fmt.Sprintf("%s %d", one.Health, one.EffectiveWeight()))
		}
		return strings.Join(words, ", ")
	}
	r.must(r.SetHealth(s.Key, at(0), model.Leaves(1, 253)), r.SetHealth(s.Key, at(1), 60*model.Percent), r.SetHealth(s.Key, at(2), model.Down))
	if got, want := health(), "down 0, 40% 101, 0.395% 1"; got != want {
		t.Errorf("at first %s, want %s", got, want)
	}
	if _, steps, err := r.upgradeTo(percentBuild(t), "before", ""); err != nil {
		t.Fatalf("to the earlier build, after %q: %v", steps, err)
	}
	if _, steps, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, ""); err != nil {
		t.Fatalf("after %q: %v", steps, err)
	}
	r.open(Sizes{})
	if got, want := health(), "down 0, 40% 101, 1% 2"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	r.must(r.SetHealth(s.Key, at(0), model.Leaves(2, 253)))
	if got, want := health(), "down 0, 40% 101, 0.791% 2"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	r.wantClean("upgraded")
}

// mapNamed is a map that the rig's director has pinned.
func (r *rig) mapNamed(name string) *ebpf.Map {
	r.Helper()
	m, err := ebpf.LoadPinnedMap(r.dir+"/"+name, nil)
	r.must(err)
	r.Cleanup(func() { m.Close() })
	return m
}
