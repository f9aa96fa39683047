// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// leaseFile says until when the daemon answers for what is published, by the clock that goes on
// while the machine sleeps, with the time after which HAProxy is to check servers itself.
func leaseFile(dir string) string { return filepath.Join(dir, "lease") }

// Renew has HAProxy's own checks be off for a time from now on. The daemon calls it again and
// again; 0: they are never to be on.
func Renew(dir string, fallback time.Duration) error {
	text := "never\n"
	if fallback > 0 {
		text = strconv.FormatInt(int64(sinceBoot()+fallback), 10) + "\n"
	}
	fresh := leaseFile(dir) + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		return fmt.Errorf("lease of HAProxy's configuration: %w", err)
	}
	if err := os.Rename(fresh, leaseFile(dir)); err != nil {
		return fmt.Errorf("lease of HAProxy's configuration: %w", err)
	}
	return nil
}

// expired is true if the daemon has not renewed its lease in time. While there has been no daemon,
// nobody knows how long to wait: it is counted from when this supervisor was started, see patience.
func expired(dir string, now time.Duration, begun, patience time.Duration) bool {
	text, err := os.ReadFile(leaseFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return patience > 0 && now-begun >= patience
	}
	until, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return err == nil && now >= time.Duration(until)
}

// sinceBoot is the time since the machine was started, also while it slept.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
