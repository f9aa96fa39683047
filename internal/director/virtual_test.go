// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// newVirtual is a director in virtual time in a rig's network.
func newVirtual(t testing.TB, s model.Service, weights ...int32) (*rig, *Virtual) {
	t.Helper()
	r := newRig(t, small)
	return r, r.virtual(1, s, weights...)
}

func (r *rig) virtual(seed uint64, s model.Service, weights ...int32) (v *Virtual) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) {
		v, err = NewVirtual(small, r.client, r.server)
		return err
	}))
	r.Cleanup(v.Close)
	r.begin(v, seed, s, weights...)
	return v
}

// begin begins a simulation of a service.
func (r *rig) begin(v *Virtual, seed uint64, s model.Service, weights ...int32) {
	r.Helper()
	var servers []model.Server
	for i, w := range weights {
		servers = append(servers, realServer(i, w))
	}
	r.must(v.Reset(seed), v.Serve(s, servers))
}

// virtualSyn opens a connection, and says which server got it.
func (r *rig) virtualSyn(v *Virtual, client string) (server int) {
	r.Helper()
	r.must(r.ns.Do(func() error {
		fate, err := v.FromClient(testenv.TCP(client, vip, "S").Frame())
		if err != nil || fate != Forwarded {
			return fmt.Errorf("verdict %d: %w", fate, err)
		}
		addr, _, err := v.Chosen()
		server = int(addr - binary.BigEndian.Uint32(serverAddr(0).AsSlice()))
		return err
	}))
	return server
}

func (r *rig) wantLoad(v *Virtual, server int, active, inactive uint32) {
	r.Helper()
	a, i, err := v.Load(server)
	r.must(err)
	if a != active || i != inactive {
		r.Errorf("server %d has %d active and %d inactive connections, want %d and %d", server, a, i, active, inactive)
	}
}

// A connection ends when the virtual time has come, whatever the real one is.
func TestVirtualTimeEndsConnections(t *testing.T) {
	r, v := newVirtual(t, tcpService(vip, "rr"), 1)
	server := r.virtualSyn(v, client1)
	r.must(v.Sweep())
	r.wantLoad(v, server, 1, 0)
	synRecv := defaultTimeouts[3]
	r.must(v.SetTime(VirtualStart+synRecv-VirtualTick), r.ns.Do(v.Sweep))
	r.wantLoad(v, server, 1, 0)
	r.must(v.SetTime(VirtualStart+synRecv+2*VirtualTick), r.ns.Do(v.Sweep))
	r.wantLoad(v, server, 0, 0)
}

// Real time does nothing.
func TestRealTimeEndsNothing(t *testing.T) {
	r, v := newVirtual(t, tcpService(vip, "rr"), 1)
	set, err := v.d.config()
	r.must(err)
	for i := range set.Timeout {
		set.Timeout[i] = uint64(10 * time.Millisecond)
	}
	r.must(putConfig(v.d.maps.Config, set))
	server := r.virtualSyn(v, client1)
	time.Sleep(400 * time.Millisecond)
	r.must(v.Sweep())
	r.wantLoad(v, server, 1, 0)
}

// The same seed draws the same servers, another one others.
func TestVirtualChanceIsSeeded(t *testing.T) {
	r := newRig(t, small)
	draw := func(seed uint64) (all string) {
		v := r.virtual(seed, tcpService(vip, "twos"), 1, 1, 1, 1, 1, 1)
		for i := range 64 {
			all += fmt.Sprint(r.virtualSyn(v, nthClient(i)))
		}
		return all
	}
	first := draw(7)
	if again := draw(7); again != first {
		t.Errorf("seed 7 drew %s, then %s", first, again)
	}
	if other := draw(8); other == first {
		t.Errorf("seeds 7 and 8 both drew %s", first)
	}
}

// Virtual and real programs choose alike.
func TestVirtualChoosesAsReal(t *testing.T) {
	weights := []int32{40, 30, 20}
	r, v := newVirtual(t, tcpService(vip, "rr"), weights...)
	for n, scheduler := range []string{"wrr", "lc", "lblcr", "sh", "sed", "ovf", "mh"} {
		t.Run(scheduler, func(t *testing.T) {
			r := r.in(t)
			r.begin(v, 1, tcpService(vip, scheduler), weights...)
			service := nthVIP(n)
			r.addService(tcpService(service, scheduler), weights...)
			for i := range 60 {
				real := r.syn(nthClient(i), service).Addr()
				if got := serverAddr(r.virtualSyn(v, nthClient(i))); got != real {
					t.Fatalf("connection %d goes to %s, in virtual time to %s", i, real, got)
				}
			}
		})
	}
}

// Nothing of what was before a Reset is left.
func TestVirtualResetForgets(t *testing.T) {
	r, v := newVirtual(t, tcpService(vip, "lblc"), 1, 1, 1)
	draw := func() (all string) {
		for i := range 40 {
			all += fmt.Sprint(r.virtualSyn(v, nthClient(i)))
			r.must(v.SetTime(VirtualStart + time.Duration(i)*time.Second))
		}
		return all
	}
	first := draw()
	for _, m := range []*ebpf.Map{v.d.maps.ReplyOwners, v.d.maps.Localities} {
		if r.entries(m) == 0 {
			t.Errorf("%s has nothing to forget", m)
		}
	}
	table := &rig{TB: t, Director: v.d}
	if table.conns() == 0 {
		t.Error("the connection table has nothing to forget")
	}
	r.must(v.Reset(1))
	if n, lines := table.conns(), table.linesInUse(); n != 0 || lines != 0 {
		t.Errorf("the connection table has %d entries left, in %d lines", n, lines)
	}
	for _, m := range []*ebpf.Map{v.d.maps.ReplyOwners, v.d.maps.Localities, v.d.maps.Services} {
		if n := r.entries(m); n != 0 {
			t.Errorf("%s has %d elements left", m, n)
		}
	}
	r.must(r.ns.Do(func() error {
		return v.Serve(tcpService(vip, "lblc"), []model.Server{realServer(0, 1), realServer(1, 1), realServer(2, 1)})
	}))
	r.wantLoad(v, 0, 0, 0)
	if again := draw(); again != first {
		t.Errorf("at first the servers were %s, then %s", first, again)
	}
}

func BenchmarkVirtualPackets(b *testing.B) {
	r, v := newVirtual(b, tcpService(vip, "rr"), 1, 1, 1)
	syn := testenv.TCP(client1, vip, "S").Frame()
	ack := testenv.TCP(client1, vip, "A").Frame()
	r.must(r.ns.Do(func() error {
		if _, err := v.FromClient(syn); err != nil {
			return err
		}
		for b.Loop() {
			if _, err := v.FromClient(ack); err != nil {
				return err
			}
		}
		return nil
	}))
}

func BenchmarkVirtualLoad(b *testing.B) {
	r := newRig(b, small)
	for b.Loop() {
		r.must(r.ns.Do(func() error {
			v, err := NewVirtual(small, r.client, r.server)
			if err == nil {
				v.Close()
			}
			return err
		}))
	}
}
