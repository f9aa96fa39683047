// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/jsonfile"
	"imbang/internal/lab/topology"
)

// saved is the table, as ipvsadm saves it.
func (k *keeper) saved() string {
	k.t.Helper()
	return k.do("ipvsadm", "-Sn")
}

// place is the daemon's directory.
func (k *keeper) place() (dir string) {
	k.t.Helper()
	if err := k.Director.Do(func() (err error) { dir, err = place.Dir(); return err }); err != nil {
		k.t.Fatal(err)
	}
	return dir
}

// What cannot be done for another command's lock is done when that is free.
func TestRunTriesAgain(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	addr := func(i int) string { return k.Servers[i].Addr[topology.IPv4].String() + ":80" }
	release := lockTable(t, k.Director)
	k.configure(checkEvery + strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", ""))
	o := imbang(t, k.Director, "", "reload")
	if o.status != 3 || !strings.Contains(o.stderr, "1 of 1 changes failed, and are tried again: delete service") {
		t.Errorf("%+v", o)
	}
	release()
	k.await("the reload's rest", func() bool { return !strings.Contains(k.saved(), addr(2)) })
	k.await("no alarm", func() bool { return len(k.status().Alarms) == 0 })
	release = lockTable(t, k.Director)
	imbang(t, k.Director, "", "weight", "-t", k.Virtual(topology.IPv4).String()+":80", "-r", addr(0), "--set", "77")
	release()
	k.await("the weight", func() bool { return strings.Contains(k.saved(), addr(0)+" -m -w 77") })
	if log := k.do("events"); strings.Contains(log, "the table was changed") {
		t.Errorf("the daemon's own changes are drift:\n%s", log)
	}
}

// What does not fit the table is refused aloud, and deleted again by the next file.
func TestRunFullTable(t *testing.T) {
	k := newKeeper(t, 1, "services: []\n")
	k.end(syscall.SIGTERM)
	k.do("detach")
	k.extra = ", max_servers: 64"
	weights, foreign := map[netip.Addr]int{}, "-A -t 10.20.9.9:80 -s rr\n"
	for i, a := range k.many(70) {
		if i < 40 {
			weights[a] = 1
		} else {
			foreign += "-a -t 10.20.9.9:80 -r " + a.String() + ":80 -m\n"
		}
	}
	k.configure("services: []\n")
	k.start()
	must(t, k.Director, foreign, "ipvsadm", "-R")
	k.configure(manyConfig("rr", weights))
	o := imbang(t, k.Director, "", "reload")
	if o.status != 3 || !strings.Contains(o.stderr, "changes failed, and are tried again: add service") {
		t.Errorf("%+v", o)
	}
	if a := k.status().Alarms; len(a) != 1 || a[0].Name != "apply" {
		t.Errorf("%+v", a)
	}
	k.configure("daemon: {max_removed: 100 %}\nservices: []\n")
	if o := imbang(t, k.Director, "", "reload"); o.status != 0 {
		t.Errorf("%+v", o)
	}
	if got := k.saved(); strings.Contains(got, "10.20.0.1:80") {
		t.Errorf("the table is\n%s", got)
	}
}

// What others deleted is not added before the next reload, whatever its checks say.
func TestRunDeletedStaysDeleted(t *testing.T) {
	k := newKeeper(t, 2, checkEvery+strings.Replace(strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", ""), "    checks:", "    on_failure: remove\n    checks:", 1))
	addr := k.Servers[1].Addr[topology.IPv4].String() + ":80"
	k.await("both", func() bool { return k.states() == "a up/1, b up/1" })
	k.do("ipvsadm", "-d", "-t", k.Virtual(topology.IPv4).String()+":80", "-r", addr)
	health := func() string {
		for _, s := range k.status().Services[0].Servers {
			if s.Name == "b" {
				return s.Checks[0].State
			}
		}
		return ""
	}
	turn := func() {
		k.kill(1)
		k.await("down", func() bool { return health() == "down" })
		k.revive(1)
		k.await("up", func() bool { return health() == "up" })
		time.Sleep(300 * time.Millisecond)
		if got := k.saved(); strings.Contains(got, addr) {
			t.Errorf("it was added again:\n%s", got)
		}
	}
	turn()
	k.end(syscall.SIGKILL)
	k.start()
	turn()
	k.do("reload")
	if got := k.saved(); !strings.Contains(got, addr) {
		t.Errorf("the reload did not add it:\n%s", got)
	}
}

// A daemon that was killed in a reload leaves nothing behind that nobody owns, whichever
// file the next one begins with.
func TestRunKilledInReload(t *testing.T) {
	few := checkEvery + strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", "")
	k := newKeeper(t, 3, few)
	k.configure(checkEvery + threeServers)
	k.do("reload")
	k.end(syscall.SIGKILL)
	// The record as it is between the first change and the last.
	file := filepath.Join(k.place(), "record.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	r["pending"] = true
	if err := jsonfile.Write(file, r); err != nil {
		t.Fatal(err)
	}
	k.configure(few)
	k.start()
	if got := k.saved(); strings.Contains(got, k.Servers[2].Addr[topology.IPv4].String()) {
		t.Errorf("the table is\n%s", got)
	}
}

// A daemon that begins with a file that lacks most servers checks the others, keeps these, and says so
// until a reload deletes them by force, or the file has them again.
func TestRunKeepsSurplusAtStart(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	k.await("all servers", func() bool { return k.states() == "a up/1, b up/1, c up/1" })
	all := k.saved()
	one := checkEvery + threeServers[:strings.Index(threeServers, "      - {name: b")]
	k.configure(one)
	for range 2 { // by the daemon's own record of it, too
		k.end(syscall.SIGKILL)
		if o := imbang(t, k.Director, "", "plan", k.config, "--state", filepath.Join(k.dir, "state")); o.status != 0 || o.stdout != "no change\n" || !strings.Contains(o.stderr, "imbang run keeps them at its start, unchecked: refused: 2 of 3 servers would be deleted") {
			t.Errorf("%+v", o)
		}
		k.start()
		k.await("the alarm", k.hasAlarm("max-removed", "no longer has 2 of 3 servers"))
		time.Sleep(1500 * time.Millisecond)
		if got := k.states(); got != "a up/1" || k.saved() != all || len(k.status().Drift) > 0 {
			t.Errorf("states %s, drift %q, table\n%s", got, k.status().Drift, k.saved())
		}
		if o := imbang(t, k.Director, "", "reload"); o.status != 3 || !strings.Contains(o.stderr, "2 of 3 servers would be deleted") {
			t.Errorf("%+v", o)
		}
	}
	k.kill(0)
	k.await("checked", func() bool { return k.states() == "a down/0" })
	k.configure(checkEvery + threeServers)
	k.do("reload")
	k.await("all three again", func() bool { return k.states() == "a down/0, b up/1, c up/1" && len(k.status().Alarms) == 0 })
	k.configure(one)
	k.end(syscall.SIGTERM)
	k.start()
	if text := k.do("reload", "--force"); !strings.HasSuffix(text, "2 servers deleted\n") || len(k.status().Alarms) > 0 || strings.Count(k.saved(), "-a ") != 1 {
		t.Errorf("reload --force: %s, alarms %v, table\n%s", text, k.status().Alarms, k.saved())
	}
}

// A virtual address goes with its line, if the daemon added it.
func TestRunDropsAddresses(t *testing.T) {
	k := newKeeper(t, 1, "services: []\n")
	has := func(a string) bool {
		return strings.Contains(finish(t, k.Director, exec.Command("ip", "address", "show", "dev", "lo"), "").stdout, a)
	}
	if o := finish(t, k.Director, exec.Command("ip", "address", "add", "10.20.7.2/32", "dev", "lo"), ""); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	k.extra = ", addresses: [{address: 10.20.7.1/32, device: lo}, {address: 10.20.7.2/32, device: lo}]"
	k.configure("services: []\n")
	k.do("reload")
	if !has("10.20.7.1/32") {
		t.Fatal("the address was not added")
	}
	listed, none := k.extra, ""
	without := func(what string) {
		t.Helper()
		if has("10.20.7.1/32") || !has("10.20.7.2/32") {
			t.Errorf("%s: 10.20.7.1, the daemon's own: %v; 10.20.7.2, another's: %v", what, has("10.20.7.1/32"), has("10.20.7.2/32"))
		}
	}
	begin := func(extra string) {
		t.Helper()
		k.extra = extra
		k.configure("services: []\n")
		k.start()
	}
	k.end(syscall.SIGKILL)
	begin(none)
	without("started without it")
	// Without the director and its record, too.
	k.extra = listed
	k.configure("services: []\n")
	k.do("reload")
	k.do("detach", "--force")
	k.end(syscall.SIGKILL)
	dir := k.place()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	begin(listed)
	if k.extra = none; !has("10.20.7.1/32") {
		t.Fatal("the address is not there")
	}
	k.configure("services: []\n")
	if text := k.do("reload"); !strings.Contains(text, "delete address 10.20.7.1/32 on lo") {
		t.Errorf("reload: %s", text)
	}
	without("reloaded without it")
	// A director that is removed leaves none of them.
	k.extra = listed
	k.configure("services: []\n")
	k.do("reload")
	k.end(syscall.SIGTERM)
	if k.do("detach", "--keep-table"); !has("10.20.7.1/32") {
		t.Error("detach --keep-table deleted the address")
	}
	if text := k.do("detach"); text != "deleted address 10.20.7.1/32 on lo, which imbang run had added\n" {
		t.Errorf("detach: %q", text)
	}
	without("detached")
}
