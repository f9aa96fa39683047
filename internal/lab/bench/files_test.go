// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// What a killed run leaves in the temporary directory is known as such.
func TestFilesOfKilledRunsAreOrphaned(t *testing.T) {
	for _, p := range []string{prefix, topology.Prefix} {
		run, err := host.NewRun(p)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := tempDir(run)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		name := filepath.Base(dir)
		if host.Orphaned(p, name) {
			t.Errorf("%s: this process runs", name)
		}
		own := fmt.Sprintf("%s-%d-", p, os.Getpid())
		_, rest, _ := strings.Cut(strings.TrimPrefix(name, own), "-")
		if earlier := own + "1-" + rest; !host.Orphaned(p, earlier) { // a process that started at another time
			t.Errorf("%s is not found", earlier)
		}
	}
}
