// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"time"

	"imbang/internal/bpfobj"
)

// Standby says that the role of a backup of Linux's synchronization runs until a time
// (BootTime); 0: it has ended. Meanwhile, if the setting backup_only is 1, packets of clients
// pass to the stack (sysctl_backup_only). The role calls again before that time; so one that
// was killed leaves nothing behind.
func (d *Director) Standby(until time.Duration) error {
	if err := d.maps.FailoverWords.Put(uint32(bpfobj.LbFailoverWordFAILOVER_BACKUP), uint64(max(until, 0))); err != nil {
		return fmt.Errorf("note that a backup runs: %w", err)
	}
	set, err := d.config()
	if err != nil {
		return err
	}
	if until <= 0 || set.BackupOnly == 0 || set.Standby != 0 {
		return nil // the data plane sees that a backup has ended
	}
	// Under the lock the setting may be another one.
	return d.changeConfig(func(set *bpfobj.LbSettings) { set.Standby = min(set.BackupOnly, 1) })
}

// ExtendStandby is Standby for a role that runs already. It takes no lock, and may be called
// while another goroutine uses the handle: what that waits for must not end the role. After an
// upgrade it is ErrReplaced. It leaves it to Standby to follow the setting backup_only.
func (d *Director) ExtendStandby(until time.Duration) error {
	if err := d.maps.FailoverWords.Put(uint32(bpfobj.LbFailoverWordFAILOVER_BACKUP), uint64(max(until, 0))); err != nil {
		return fmt.Errorf("note that a backup runs: %w", err)
	}
	_, err := d.current()
	return err
}
