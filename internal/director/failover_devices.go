// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"

	"imbang/internal/host"
)

// Attached are the indices of the devices that the director's programs are attached to on
// the way in. It is to be called in the director's network namespace, and may wait for
// others that change its devices.
func (f *Failover) Attached() (devices []int, err error) {
	all, err := pinnedAttachments(f.in.dir())
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Role != roleLocal {
			devices = append(devices, a.Index)
		}
	}
	if len(devices) == 0 { // by classifiers, or not at all
		found, err := host.Classifiers(classifierPrefix)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if c.Name != classifierPrefix+roleLocal {
				devices = append(devices, c.Device)
			}
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices), nil
}
