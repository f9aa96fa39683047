// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"path/filepath"
	"time"
)

// checked is the directory in which configurations are checked: they have copies of private keys,
// which a process that is killed leaves.
const checked = "check"

// checkAge is how old what is left has to be to be removed: a check takes less.
const checkAge = 2 * time.Minute

// Checks is a directory for checks of configurations; "", that of the system, where there is no
// proxy, or another account cannot use its directory.
func Checks(dir string) string {
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	SweepChecks(dir, time.Now())
	at := filepath.Join(dir, checked)
	if err := os.Mkdir(at, 0o700); err != nil && !os.IsExist(err) {
		return ""
	}
	// Not by the permissions: root may have none in a file system, and other accounts all.
	probe, err := os.MkdirTemp(at, "probe-")
	if err != nil {
		return ""
	}
	if os.Remove(probe) != nil {
		return ""
	}
	return at
}

// SweepChecks removes what checks have left that did not end.
func SweepChecks(dir string, now time.Time) {
	at := filepath.Join(dir, checked)
	entries, _ := os.ReadDir(at)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > checkAge {
			_ = os.RemoveAll(filepath.Join(at, e.Name()))
		}
	}
}
