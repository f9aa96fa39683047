// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"strings"
	"testing"

	"imbang/internal/bpfobj"
)

// What detach --keep-table leaves of an interrupted upgrade has no pins of detached links:
// upgrade and attach work then.
func TestDetachKeepDuringUpgrade(t *testing.T) {
	for _, step := range []string{"exchange the pins", "remove the earlier build", "replace the programs on devices"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, small)
			r.must(r.attach(clientDev, serverDev, HookAuto))
			l := newLiving(r, 3)
			_, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint+"x", "")
			r.must(err)
			_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, step)
			var k killedBefore
			if !errors.As(err, &k) {
				t.Fatal(err)
			}
			r.must(r.ns.Do(func() error { return Detach(false) }))
			_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
			r.must(err)
			pins, err := os.ReadDir(r.instance().dir())
			r.must(err)
			for _, p := range pins {
				if strings.HasPrefix(p.Name(), linkPrefix) {
					t.Errorf("stale pin of a detached link: %s", p.Name())
				}
			}
			r.open(Sizes{})
			r.wantAttached()
			r.must(r.attach(clientDev, serverDev, HookAuto))
			r.wantAttached("client "+clientDev+" tcx", "server "+serverDev+" tcx")
			l.enter()
			l.check("afterwards")
		})
	}
}
