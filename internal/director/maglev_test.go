// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj/lbstages"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// counting is a rig whose data plane counts its look-ups.
type counting struct {
	*rig
	costs *ebpf.Map
}

func newCounting(t *testing.T) counting {
	r := newRigWith(t, func(r *rig) {
		defer UseVariant(func() (*ebpf.CollectionSpec, error) { return lbstages.Load(true) })()
		r.open(small)
	})
	info, err := r.progs.LbWhole.Info()
	r.must(err)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		r.must(err)
		t.Cleanup(func() { m.Close() })
		if about, err := m.Info(); err == nil && about.Name == lbstages.CostsMap {
			return counting{r, m}
		}
	}
	t.Fatal("the data plane does not count its look-ups")
	return counting{}
}

// lookups sends a client's packet and counts the look-ups up to where its server is known.
func (c counting) lookups(p testenv.Packet) (n uint64, got result) {
	c.Helper()
	c.must(c.costs.Put(uint32(0), &lbstages.LbStageCosts{}))
	got = c.fromClient(p)
	var costs lbstages.LbStageCosts
	c.must(c.costs.Lookup(uint32(0), &costs))
	return costs.Of[lbstages.LbStageSTAGE_OPEN].Lookups, got
}

// A SYN to a service by mh of which no server takes a connection costs few look-ups, however
// many servers it has, and not a hash and two look-ups for each of the 4093 entries of its
// table. As soon as one takes some, clients find it.
func TestMaglevWithoutServers(t *testing.T) {
	const most = 150
	c := newCounting(t)
	for _, servers := range []int{1, 11, 12, 200} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			c := counting{c.in(t), c.costs}
			vip := nthVIP(servers)
			s := tcpService(vip, "mh")
			s.Flags = model.SchedFlag1 // mh-fallback
			weights := make([]int32, servers)
			for i := range weights {
				weights[i] = 1
			}
			c.addService(s, weights...)
			weigh := func(from, to int, weight int32, upper uint32) {
				t.Helper()
				c.must(c.Batch(func() error {
					for i := from; i < to; i++ {
						server := realServer(i, weight)
						server.Upper = upper
						if err := c.EditServer(s.Key, server); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			client := 0
			refused := func(what string, want bool) {
				t.Helper()
				for range 4 {
					client++
					n, got := c.lookups(testenv.TCP(nthClient(client), vip, "S"))
					_, err := got.server()
					isServer := err == nil && got.frame[14+9] == 6 // TCP, and no ICMP error
					if isServer == want {
						t.Errorf("%s: a SYN got a server: %t", what, isServer)
					}
					if want && n > most {
						t.Errorf("%s: %d look-ups, want %d at most", what, n, most)
					}
				}
			}
			refused("all take connections", false)
			weigh(0, servers, 0, 0)
			refused("none has weight", true)
			weigh(servers-1, servers, 1, 0)
			refused("the last one has weight", false)
			weigh(servers-1, servers, 0, 0)
			refused("none again", true)
			// Each has its connections: those of before, and one more.
			weigh(0, servers, 1, 1)
			for range 20 * servers {
				client++
				c.fromClient(testenv.TCP(nthClient(client), vip, "S"))
			}
			refused("all have reached their thresholds", true)
			weigh(servers-1, servers, 1, 100)
			refused("one has a higher threshold", false)
		})
	}
}
