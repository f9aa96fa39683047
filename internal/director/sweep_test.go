// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What an upgrade that was killed left goes with the director of a network namespace that
// is gone.
func TestSweepInterruptedUpgrade(t *testing.T) {
	r := newRig(t, small)
	_, _, err := r.upgradeTo(ours(t), "another", "start the timers")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	in := r.instance()
	lock := strings.TrimSuffix(in.dir(), "/bpf/"+filepath.Base(in.dir())) + "/" + filepath.Base(in.dir()) + ".lock"
	r.must(os.WriteFile(lock, []byte("1"), 0o600)) // of a namespace that is no more
	r.gone = true
	// Twice, as two commands that end do it (sweep goes through the same names).
	for range 2 {
		dirs, err := filepath.Glob(in.dir() + "*")
		r.must(err)
		for _, dir := range dirs {
			in.sweepOne(dir)
		}
	}
	if left := r.pins(); len(left) > 0 {
		t.Errorf("left: %q", left)
		r.must(removePins(in.dir() + nextSuffix))
	}
}
