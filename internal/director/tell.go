// SPDX-License-Identifier: Apache-2.0

package director

import (
	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// tell runs the program that carries out a change in the kernel.
func (d *Director) tell(change *bpfobj.LbChange) error {
	_, err := d.progs.TableChanged.Run(&ebpf.RunOptions{Context: change})
	return err
}
