// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// VRRP has a directory for each network namespace that has or had a process of imbang vrrp,
// which does not depend on a daemon or director.
const VRRP = "/run/imbang/vrrp"

// VRRPDir is that of the calling thread's network namespace.
func VRRPDir() (string, error) { return of(VRRP) }

// ErrVRRPRunning says that there is such a process already.
var ErrVRRPRunning = errors.New("imbang vrrp runs already in this network namespace (imbang vrrp status shows it)")

// TakeVRRP makes a directory and locks it, until the file is closed or the program ends.
func TakeVRRP(dir string) (*os.File, error) { return retake(dir, ErrVRRPRunning) }

// handoverTime is longer than a handover takes. Its directory is not locked meanwhile.
const handoverTime = time.Minute

// VRRPHandover is what a program leaves for the next one of its process.
func VRRPHandover(dir string) string { return filepath.Join(dir, "handover.json") }

// SweepVRRP removes the directories without a process.
func SweepVRRP() { sweepVRRP(VRRP) }

func sweepVRRP(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "[0-9]*"))
	for _, dir := range dirs {
		if info, err := os.Stat(VRRPHandover(dir)); err == nil && time.Since(info.ModTime()) < handoverTime {
			continue
		}
		if f, err := take(dir, ErrVRRPRunning); err == nil {
			_ = os.RemoveAll(dir)
			f.Close()
		}
	}
}
