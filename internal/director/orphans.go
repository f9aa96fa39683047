// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// endOrphans ends the connections of servers that were taken away, if the
// setting expire_nodest_conn says so; else they wait for their server.
func (d *Director) endOrphans() error {
	set, err := d.config()
	if err != nil || set.ExpireNodestConn == 0 {
		return err
	}
	if _, err := d.progs.EndOrphans.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
		return fmt.Errorf("end the connections of servers that are gone: %w", err)
	}
	return nil
}
