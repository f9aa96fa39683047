// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A new key in the same file is used from the next reload on. While the directors' keys
// differ each raises an alarm that names the other; a file that cannot be read changes
// nothing.
func TestReplicationNewKey(t *testing.T) {
	const services = "services:\n  - {name: web, virtual: \"VIP:80\", servers: [{address: S1}]}\n"
	keys := []string{replicationKey(t), replicationKey(t)}
	section := func(role, listen, to, key string) string {
		return fmt.Sprintf("synchronization:\n  replication: {role: %s, listen: %s, to: [%s], key_file: %s}\n", role, listen, to, key) + services
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Repeat("7d", 32)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, b := newKeeper(t, 1, services), newKeeper(t, 1, services)
	connectReplicating(t, a.Director, b.Director)
	a.configure(section("master", replicatingA, replicatingB, keys[0]))
	b.configure(section("backup", replicatingB, replicatingA, keys[1]))
	a.do("reload")
	b.do("reload")
	synced := func() bool { r := b.status().Replication; return r != nil && r.State == "running" && r.Synced }
	b.await("the backup has the table", synced)

	if err := os.Rename(keys[0], keys[0]+".old"); err != nil {
		t.Fatal(err)
	}
	since := a.status().Replication.Since
	if said := a.do("reload"); !strings.Contains(said, "keep replication as master") || !strings.Contains(said, "with the key that it read when it started: key file: ") {
		t.Errorf("a reload without the key file:\n%s", said)
	}
	if now := a.status().Replication.Since; !now.Equal(since) {
		t.Error("a reload without the key file restarted the master")
	}
	b.await("the backup has the table still", synced) // it has not while the master is silent for a second
	write(keys[0])
	for _, verb := range []string{"plan", "reload"} {
		if said := a.do(verb); !strings.Contains(said, "restart replication as master, 192.168.78.1:8790 to 192.168.78.2:8790, group 0: "+keys[0]+" has another key") {
			t.Errorf("%s with another key:\n%s", verb, said)
		}
	}
	a.await("the master's alarm", a.hasAlarm("replication-key", "datagrams of "+replicatingB+" are signed with another key"))
	b.await("the backup's alarm", b.hasAlarm("replication-key", "datagrams of "+replicatingA+" are signed with another key"))
	write(keys[1])
	b.do("reload")
	b.await("the backup has the table with the new key", synced)
	for _, k := range []*keeper{a, b} {
		k.await("the alarm ends", k.hasNoAlarm("replication-key"))
	}
	if said := b.do("reload"); strings.Contains(said, "replication") {
		t.Errorf("a reload with the same key:\n%s", said)
	}
}
