// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// refusedTries is how often tell runs the program while the kernel refuses a scheduler's
// table, and refusedPause the time between two tries. The memory for an element comes from
// a reserve of its map, which the kernel fills up again at once.
const (
	refusedTries = 20
	refusedPause = time.Millisecond
)

// tell runs the program that carries out a change in the kernel. After an error the
// scheduler has its former table: the edit is half done, and the next one repairs it.
func (d *Director) tell(change *bpfobj.LbChange) error {
	for try := 1; ; try++ {
		rc, err := d.progs.TableChanged.Run(&ebpf.RunOptions{Context: change})
		if err != nil || rc == 0 {
			return err
		}
		if try == refusedTries {
			return fmt.Errorf("the kernel refused its table %d times: %w", try, unix.Errno(-int32(rc)))
		}
		time.Sleep(refusedPause)
	}
}
