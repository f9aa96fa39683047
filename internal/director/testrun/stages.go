// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj/lbstages"
	"imbang/internal/director"
)

// MeasureStages makes this process load the variant of the data plane that
// measures the stages of a packet's path, until restore is called. It adds up time,
// or with counts the calls of maps. No other goroutine may use the director meanwhile.
func MeasureStages(counts bool) (restore func()) {
	return director.UseVariant(func() (*ebpf.CollectionSpec, error) { return lbstages.Load(counts) })
}

// StageCosts are what a variant that is loaded has added up for the programs of
// one way. The caller closes them.
type StageCosts struct{ m *ebpf.Map }

// Stages opens the costs of the program that a way's packets go through. The
// director has no handle of them.
func (l *PacketLoop) Stages(way Way) (StageCosts, error) {
	target := l.target(way)
	if target == nil {
		return StageCosts{}, errors.New("no program takes such packets")
	}
	info, err := target.Info()
	if err != nil {
		return StageCosts{}, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return StageCosts{}, fmt.Errorf("map %d of %s: %w", id, info.Name, err)
		}
		if about, err := m.Info(); err == nil && about.Name == lbstages.CostsMap {
			return StageCosts{m}, nil
		}
		m.Close()
	}
	return StageCosts{}, fmt.Errorf("%s does not measure its stages", info.Name)
}

// Clear sets them to zero.
func (s StageCosts) Clear() error { return s.m.Put(uint32(0), &lbstages.LbStageCosts{}) }

// Read returns them.
func (s StageCosts) Read() (costs lbstages.LbStageCosts, err error) {
	err = s.m.Lookup(uint32(0), &costs)
	return costs, err
}

// Close gives up the handle.
func (s StageCosts) Close() error { return s.m.Close() }
