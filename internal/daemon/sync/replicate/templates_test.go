// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"testing"
	"time"
)

// After a bulk transfer a backup ends templates, too, that the master does not have.
func TestTemplatesThatEnded(t *testing.T) {
	a, b := twoNodes(t, few)
	c := connection(services()[2], 0)
	a.insert(template(c), c)
	_, stop := a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr)
	wantEqual(a, b, "after joining")
	stop()
	a.remove()
	a.load() // its table is empty
	for _, s := range services() {
		a.must(a.d.AddService(s))
	}
	first := backup.State().Master.Session
	a.role(Master, b.addr)
	for deadline := time.Now().Add(patience); !backup.State().Master.Synced || backup.State().Master.Session == first; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the backup is %+v", backup.State())
		}
	}
	wantEqual(a, b, "after the master has begun anew")
}
