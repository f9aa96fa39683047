// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/director"
)

// tableClock is CLOCK_TABLE of bpf/maps.h.
const tableClock = uint32(0)

// Reset makes a Virtual as it was when it was new, but for another seed: to
// load the programs anew takes a second, which is more than a short simulation
// does. The counts of reasons alone go on.
func (v *Virtual) Reset(seed uint64) error {
	m := &v.maps
	err := errors.Join(
		v.d.EmptyConnections(),
		clearHash[bpfobj.LbEndpoint, bpfobj.LbReplyOwner](m.ReplyOwners),
		clearHash[bpfobj.LbServiceKey, bpfobj.LbService](m.Services),
		director.ForgetSchedulers(&m.LbMaps),
		clearHash[bpfobj.LbAddress, bpfobj.LbAllowance](m.Allowances),
		v.d.ForgetNumbers(),
		m.Clocks.Put(tableClock, make([]byte, m.Clocks.ValueSize())),
	)
	if err != nil {
		return fmt.Errorf("empty the virtual director: %w", err)
	}
	marks, err := v.d.Marks()
	if err != nil {
		return err
	}
	for _, r := range marks {
		if err := v.Mark(director.MarkRule{Prefix: r.Prefix}); err != nil {
			return err
		}
	}
	return v.begin(seed)
}

// begin sets what is not empty at the beginning.
func (v *Virtual) begin(seed uint64) error {
	v.controls.Seed(seed)
	v.controls.TimersOff()
	if err := errors.Join(v.SetTime(VirtualStart), v.d.Restart(), v.d.Provision(v.sizes)); err != nil {
		return err
	}
	if rc, err := v.clocks.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); rc != 0 || err != nil {
		return fmt.Errorf("make the buckets of the connection table: %d, %w", int32(rc), err)
	}
	return nil
}

// clearHash deletes all elements.
func clearHash[K, V any](m *ebpf.Map) error {
	keys, _, err := director.ReadHash[K, V](m)
	if err == nil && len(keys) > 0 {
		_, err = m.BatchDelete(keys, nil)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	return nil
}
