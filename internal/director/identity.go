// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Identity names this director among all that its network namespace had: it stays over
// edits and upgrades, and the next one loaded after a detach has another.
func (d *Director) Identity() (string, error) {
	return identityOf(int(d.lock.Fd()), "", unix.AT_EMPTY_PATH)
}

// identityOf is that of the director with this lock.
func identityOf(dir int, name string, flags int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, name, flags, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MTIME, &st); err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	made := st.Btime
	if st.Mask&unix.STATX_BTIME == 0 {
		made = st.Mtime // it is written once, when it is made
	}
	return fmt.Sprintf("%d-%d.%09d", st.Ino, made.Sec, made.Nsec), nil
}
