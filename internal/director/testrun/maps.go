// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Map opens a map of the program that a way's packets go through: one that the
// director has no handle of, as a variant's. The caller closes it.
func (l *PacketLoop) Map(way Way, name string) (*ebpf.Map, error) {
	target := l.target(way)
	if target == nil {
		return nil, errors.New("no program takes such packets")
	}
	info, err := target.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("map %d of %s: %w", id, info.Name, err)
		}
		if about, err := m.Info(); err == nil && about.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("%s has no map %s", info.Name, name)
}
