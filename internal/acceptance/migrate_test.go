// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
)

// listedByLinux are a table and its connections as a director with ip_vs printed them.
func listedByLinux(t *testing.T) (table, connections string) {
	t.Helper()
	const dir = "../daemon/sync/ipvsconn/testdata/"
	for name, to := range map[string]*string{"linux-6.1.176.table": &table, "linux-6.1.176.ip_vs_conn": &connections} {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		*to = string(text)
	}
	return table, connections
}

// received is the JSON of imbang migrate receive.
type received struct {
	Backup string
	Table  *struct {
		Services, Servers struct{ Added, Existed int }
		Refused           int
	}
	Connections *struct {
		Entries, Entered, Existed, Guessed, Refused int
		Reasons                                     map[string]int
	}
}

func receive(t *testing.T, ns *host.Namespace, status int, stdin string, args ...string) (r received, errs string) {
	t.Helper()
	got := imbang(t, ns, stdin, append([]string{"migrate", "receive", "-o", "json"}, args...)...)
	if got.status != status {
		t.Fatalf("%v: status %d, want %d: %s", args, got.status, status, got.stderr)
	}
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %v: %s", args, err, got.stdout)
	}
	return r, got.stderr
}

// What Linux listed is entered once, with the role backup started once, and is what
// imbang ipvsadm -Lcn lists; from there it is sent to another director.
func TestMigrateBetweenDirectors(t *testing.T) {
	one, other := newNamespace(t), newNamespace(t)
	if err := host.Connect(host.End{NS: one, Name: "sync0"}, host.End{NS: other, Name: "sync0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, address := range map[*host.Namespace]string{one: "192.168.77.1/24", other: "192.168.77.2/24"} {
		withDirector(t, ns)
		if err := ns.AddAddresses("sync0", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
		must(t, ns, "", "settings", "sync_threshold=3") // loads a director
	}
	t.Cleanup(func() {
		for _, ns := range []*host.Namespace{one, other} {
			imbang(t, ns, "", "ipvsadm", "--stop-daemon", "backup")
		}
	})
	table, connections := listedByLinux(t)
	listing := filepath.Join(t.TempDir(), "listing")
	if err := os.WriteFile(listing, []byte(connections), 0o600); err != nil {
		t.Fatal(err)
	}

	// Without the table nothing has a service.
	r, errs := receive(t, one, 1, "", "--connections", listing)
	if c := r.Connections; r.Backup != "none" || c.Refused != 15 || c.Reasons["no_service"] != 15 || !strings.Contains(errs, "the role backup does not run here") {
		t.Errorf("%+v, %s", r, errs)
	}
	r, _ = receive(t, one, 0, table, "--table", "-", "--interface", "sync0", "--sync-id", "7", "--connections", listing)
	if r.Backup != "started" || r.Table.Services.Added != 10 || r.Table.Servers.Added != 12 || r.Connections.Entered != 15 || r.Connections.Refused != 0 {
		t.Errorf("%+v %+v %+v", r.Backup, r.Table, r.Connections)
	}
	r, _ = receive(t, one, 0, table, "--table", "-", "--interface", "sync0", "--sync-id", "7", "--connections", listing)
	if r.Backup != "running" || r.Table.Services.Existed != 10 || r.Table.Servers.Existed != 12 || r.Connections.Existed != 15 {
		t.Errorf("again: %+v %+v %+v", r.Backup, r.Table, r.Connections)
	}
	if got := imbang(t, one, "", "migrate", "receive", "--interface", "sync0", "--sync-id", "8"); got.status != 3 || !strings.Contains(got.stderr, "runs already with --interface sync0 --sync-id 7") {
		t.Errorf("another number: %+v", got)
	}
	if got := imbang(t, one, "IPVS connection entries\n", "migrate", "receive", "--connections", "-"); got.status != 3 || !strings.Contains(got.stderr, "standard input: the first line is not that of /proc/net/ip_vs_conn") {
		t.Errorf("another listing: %+v", got)
	}
	want := entriesOf(must(t, one, "", "ipvsadm", "-Lcn"))
	if len(want) != 15 || !want["TCP ESTABLISHED 10.10.0.2:57960 10.20.0.33:80 172.16.0.3:80"] || !want["IP ASSURED [fd00:10::2]:0 [0:4::]:0 [fd00:16::2]:0"] {
		t.Errorf("entries: %v", want)
	}

	// To the other director.
	receive(t, other, 0, table, "--table", "-", "--interface", "sync0", "--sync-id", "9")
	if got := imbang(t, one, "", "migrate", "send", "-i", "sync0", "--sync-id", "9"); got.status != 0 || !strings.HasPrefix(got.stdout, "15 entries sent 2 times: 2 messages") {
		t.Errorf("%+v", got)
	}
	var got map[string]bool
	for deadline := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = entriesOf(must(t, other, "", "ipvsadm", "-Lcn"))
	}
	for e := range want {
		if !got[e] {
			t.Errorf("the other director has not %s", e)
		}
	}
	if got := imbang(t, one, "", "migrate", "send", "-i", "sync9"); got.status != 3 || !strings.Contains(got.stderr, "sync9: no such interface") {
		t.Errorf("another device: %+v", got)
	}
}

// entriesOf are the lines of ipvsadm -Lcn without the time to expiry.
func entriesOf(listing string) map[string]bool {
	all := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		if f := strings.Fields(line); i >= 2 && len(f) >= 6 {
			all[strings.Join(append(f[:1:1], f[2:]...), " ")] = true
		}
	}
	return all
}
