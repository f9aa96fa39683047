// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// A receiver that was started anew replaces the one that it was.
func TestReceiverIsStartedAnew(t *testing.T) {
	w := newWorld(t, 3, 0)
	master, backup := w.node().sender(), w.node().receiver()
	w.run(time.Second)
	before := master.send.Receivers()
	backup.receiver()
	w.run(time.Second)
	after := master.send.Receivers()
	if len(before) != 1 || len(after) != 1 || before[0].ID == after[0].ID || !after[0].Synced {
		t.Errorf("%+v, then %+v", before, after)
	}
}
