// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// A backup of two masters stays with the first one and raises an alarm. When that ends, it
// follows the second one, whose table replaces that of the first.
func TestBackupOfTwoMasters(t *testing.T) {
	testenv.Patient(t, backupOfTwoMasters) // a master that does not run for a second has lost its backup
}

func backupOfTwoMasters(t testing.TB) {
	a, b := twoNodes(t, few)
	c := &node{TB: t, key: b.key, ns: testenv.Namespace(t, "second"), addr: netip.MustParseAddr("10.8.0.1")}
	link(b, c.ns, 0)
	c.configure(few)
	s := services()[0]
	for i := range 100 {
		a.insert(connection(s, i))
		c.insert(connection(s, 1000+i))
	}
	_, end := a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr, c.addr)
	awaitState(t, backup, "the backup joined", synced)
	wantEqual(a, b, "with one master")

	second, _ := c.role(Master, b.addr)
	is := func(alarm Alarm) bool {
		return alarm.Name == TwoMasters && strings.HasPrefix(alarm.Text, "10.8.0.1:8790 is a master")
	}
	awaitState(t, backup, "an alarm of two masters", func(s State) bool { return slices.ContainsFunc(s.Alarms, is) })
	c.insert(connection(s, 2000))
	a.insert(connection(s, 200))
	time.Sleep(300 * time.Millisecond)
	wantEqual(a, b, "with two masters")
	if m := backup.State().Master; !synced(backup.State()) || m.Sender.Addr() != a.addr {
		t.Errorf("the backup is %+v", backup.State())
	}
	if n := len(second.State().Receivers); n != 0 {
		t.Errorf("the second master has %d backups", n)
	}

	end()
	awaitState(t, backup, "the second master is followed", func(s State) bool { return synced(s) && s.Master.Sender.Addr() == c.addr })
	wantEqual(c, b, "with the second master")
	if s := backup.State(); slices.ContainsFunc(s.Alarms, is) {
		t.Errorf("the master that is followed is an alarm: %+v", s.Alarms)
	}
	if n := len(b.table()); n != 101 {
		t.Errorf("%d entries", n)
	}
}
