// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"testing"
)

// A barrier does not wait for the backup that was there before its restart.
func TestBarrierAfterABackupsRestart(t *testing.T) {
	a, b := twoNodes(t, few)
	a.insert(connection(services()[0], 0))
	master, _ := a.role(Master, b.addr)
	_, stop := b.role(Backup, a.addr)
	wantEqual(a, b, "after joining")
	stop()
	b.role(Backup, a.addr)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if all, err := master.Barrier(ctx); err != nil || len(all) != 1 || all[0].Behind != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
