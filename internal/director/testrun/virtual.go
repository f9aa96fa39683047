// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/director"
	"imbang/internal/model"
)

// Virtual is a director in virtual time, for simulations: the test variant of
// the data plane, loaded for one process alone, with a clock that this process
// turns and random numbers of its seed. No timer runs, or the real time would
// decide when connections end. It is pinned nowhere and attached to
// no device; packets are put in one by one. Its owner stays on a thread in the
// network namespace whose routes the packets are to take.
type Virtual struct {
	d        *director.Director
	maps     bpfobj.Tables
	progs    bpfobj.LbPrograms
	controls *lbtest.Controls
	turn     *ebpf.Program
	clocks   *ebpf.Program // makes the first buckets
	sizes    director.Sizes
	runner   runner
	now      time.Duration
}

// virtualObjects is what of the data plane a Virtual has, and its own.
type virtualObjects struct {
	bpfobj.Tables
	Client   *ebpf.Program `ebpf:"lb_client"`
	Server   *ebpf.Program `ebpf:"lb_server"`
	Changed  *ebpf.Program `ebpf:"table_changed"`
	Turn     *ebpf.Program `ebpf:"sweep_now"`
	Clocks   *ebpf.Program `ebpf:"start_clocks"`
	Controls *ebpf.Map     `ebpf:".data.variant"`
}

// VirtualStart is the time at which a Virtual begins: with 0, what was never
// set would look like the present.
const VirtualStart = time.Second

// NewVirtual loads a director in virtual time, of seed 0. Packets come in through the
// devices of these indexes.
func NewVirtual(sizes director.Sizes, clientDevice, serverDevice int) (*Virtual, error) {
	spec, err := lbtest.LoadLb()
	if err != nil {
		return nil, fmt.Errorf("read the test variant of the data plane: %w", err)
	}
	if err := director.Resize(spec, sizes); err != nil {
		return nil, err
	}
	v := &Virtual{sizes: sizes}
	if err := v.load(spec); err != nil {
		v.Close()
		return nil, err
	}
	v.runner.init(v.progs.LbClient.FD(), v.progs.LbServer.FD(), clientDevice, serverDevice)
	if err := v.begin(0); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *Virtual) load(spec *ebpf.CollectionSpec) (err error) {
	var objs virtualObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return director.ExplainLoad(err)
	}
	v.maps, v.turn, v.clocks = objs.Tables, objs.Turn, objs.Clocks
	v.progs = bpfobj.LbPrograms{LbClient: objs.Client, LbServer: objs.Server, TableChanged: objs.Changed}
	v.d = director.Unpinned(v.maps, v.progs)
	defer objs.Controls.Close()
	v.controls, err = lbtest.NewControls(objs.Controls)
	return err
}

// Close frees the programs and tables.
func (v *Virtual) Close() {
	if v.controls != nil {
		_ = v.controls.Close()
	}
	if v.turn != nil {
		v.turn.Close()
		v.clocks.Close()
		_ = v.maps.Close() // closing a descriptor loses nothing
		_ = v.progs.Close()
	}
}

// Director is the same as a table, to be read and edited. It has no lock and is
// not to be closed.
func (v *Virtual) Director() *director.Director { return v.d }

// SetTime turns the clock. Connections end by the next Sweep.
func (v *Virtual) SetTime(t time.Duration) error {
	v.now = t
	v.controls.SetTime(t)
	return nil
}

// Tick is how often the table would be swept by itself.
const Tick = time.Duration(1 << 26) // TICK of bpf/clock.h

// Sweep ends the connections whose time has come.
func (v *Virtual) Sweep() error {
	if _, err := v.turn.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
		return fmt.Errorf("sweep the connection table: %w", err)
	}
	return nil
}

// Serve adds a service with its servers, in this order. Their ids, by which
// Load asks, are their places in it when it is the first service.
func (v *Virtual) Serve(s model.Service, servers []model.Server) error {
	return v.d.Batch(func() error {
		if err := v.d.AddService(s); err != nil {
			return err
		}
		for _, one := range servers {
			if err := v.d.AddServer(s.Key, one); err != nil {
				return err
			}
		}
		return nil
	})
}

// Mark gives packets to a network a firewall mark.
func (v *Virtual) Mark(r director.MarkRule) error { return v.d.Mark(r) }

// Load is how many connections the data plane counts of the i-th server.
func (v *Virtual) Load(i int) (active, inactive uint32, err error) {
	l, err := v.d.Load(uint32(i))
	if err != nil {
		return 0, 0, fmt.Errorf("read the load of server %d: %w", i, err)
	}
	return l.Active, l.Inactive, nil
}

// Reasons counts what was not forwarded, by verdict and reason.
func (v *Virtual) Reasons() (map[string]uint64, error) {
	all, err := v.d.Reasons()
	if err != nil {
		return nil, err
	}
	counts := map[string]uint64{}
	for _, r := range all {
		if r.Packets > 0 {
			counts[r.Verdict+" "+r.Reason] = r.Packets
		}
	}
	return counts, nil
}
