// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Virtual is a director in virtual time, for simulations: the compiled
// programs, loaded for one process alone, with a clock that this process
// turns and random numbers of its seed. It is pinned nowhere and attached to
// no device; packets are put in one by one. Its owner stays on a thread in the
// network namespace whose routes the packets are to take.
type Virtual struct {
	d      Director
	whims  whims
	loads  *ebpf.Memory // of servers, by id
	turn   *ebpf.Program
	runner runner
	now    time.Duration
}

// virtualObjects is what of the data plane a Virtual has, and its own.
type virtualObjects struct {
	bpfobj.LbMaps
	Client  *ebpf.Program `ebpf:"lb_client"`
	Server  *ebpf.Program `ebpf:"lb_server"`
	Changed *ebpf.Program `ebpf:"table_changed"`
	Turn    *ebpf.Program `ebpf:"turn_wheel"`
	Whims   *ebpf.Map     `ebpf:"whims"`
}

// VirtualStart is the time at which a Virtual begins: with 0, what was never
// set would look like the present.
const VirtualStart = time.Second

// NewVirtual loads a director in virtual time, of seed 0. Packets come in through the
// devices of these indexes.
func NewVirtual(sizes Sizes, clientDevice, serverDevice int) (*Virtual, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	base, err := compiled()
	if err != nil {
		return nil, err
	}
	spec := base.Copy()
	resize(spec, sizes)
	for _, name := range []string{"conns6", "reverse6", "appointments6"} {
		spec.Maps[name].MaxEntries = 1 // simulations are of IPv4
	}
	spec.Maps["loads"].Flags |= mmapable
	if err := errors.Join(withWheel(spec), withWhims(spec)); err != nil {
		return nil, err
	}
	v := &Virtual{}
	if err := v.load(spec); err != nil {
		v.Close()
		return nil, err
	}
	v.runner.init(v.d.progs.LbClient.FD(), v.d.progs.LbServer.FD(), clientDevice, serverDevice)
	if err := v.begin(0); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *Virtual) load(spec *ebpf.CollectionSpec) (err error) {
	var objs virtualObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return explainLoad(err)
	}
	v.d.maps, v.turn = objs.LbMaps, objs.Turn
	v.d.progs = bpfobj.LbPrograms{LbClient: objs.Client, LbServer: objs.Server, TableChanged: objs.Changed}
	defer objs.Whims.Close() // the page stays
	if v.whims.page, err = objs.Whims.Memory(); err != nil {
		return fmt.Errorf("map the virtual clock: %w", err)
	}
	if v.loads, err = v.d.maps.Loads.Memory(); err != nil {
		return fmt.Errorf("map the servers' loads: %w", err)
	}
	return nil
}

// Close frees the programs and tables.
func (v *Virtual) Close() {
	if v.turn != nil {
		v.turn.Close()
		v.d.closeObjects()
	}
}

// SetTime turns the clock. Connections end by the next TurnWheel.
func (v *Virtual) SetTime(t time.Duration) error {
	v.now = t
	if err := v.whims.setTime(t); err != nil {
		return fmt.Errorf("turn the virtual clock: %w", err)
	}
	return nil
}

// WheelTick is how often the wheel would turn by itself.
const WheelTick = time.Duration(1 << 26) // TICK of bpf/clock.h

// TurnWheel ends the connections whose time has come.
func (v *Virtual) TurnWheel() error {
	if _, err := v.turn.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
		return fmt.Errorf("turn the wheel: %w", err)
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
func (v *Virtual) Mark(r MarkRule) error { return v.d.Mark(r) }

// Load is how many connections the data plane counts of the i-th server.
func (v *Virtual) Load(i int) (active, inactive uint32, err error) {
	var b [8]byte
	if _, err := v.loads.ReadAt(b[:], int64(i)*int64(binary.Size(bpfobj.LbLoad{}))); err != nil {
		return 0, 0, fmt.Errorf("read the load of server %d: %w", i, err)
	}
	return binary.NativeEndian.Uint32(b[:4]), binary.NativeEndian.Uint32(b[4:]), nil
}

// Reasons counts what was not forwarded, by verdict and reason.
func (v *Virtual) Reasons() (map[string]uint64, error) {
	all, err := v.d.reasons()
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
