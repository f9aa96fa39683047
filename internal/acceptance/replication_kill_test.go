// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// openTable opens the director of a namespace.
func openTable(t *testing.T, ns *host.Namespace) (d *director.Director) {
	t.Helper()
	if err := ns.Do(func() (err error) { d, err = director.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// replicaOf is a connection of a service and one of its servers, as another director tells it.
func replicaOf(virtual, server netip.AddrPort, i int) model.Connection {
	return model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Expires: 15 * time.Minute, InPackets: 3,
		Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, byte(i >> 8), byte(i)}), 40000),
		Virtual: virtual, Server: server, RealServer: server, Service: model.AddrKey(model.TCP, virtual),
	}
}

// applied fails unless all entries were applied.
func applied(t *testing.T, errs []error, err error) {
	t.Helper()
	for _, err := range append(errs, err) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// connectionsOf are all of a table, with their servers, without their expiry.
func connectionsOf(t *testing.T, d *director.Director) (lines []string) {
	t.Helper()
	for c, err := range d.Connections(director.ConnectionFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(c.Protocol, c.State, c.Client, c.Virtual, c.Server))
	}
	slices.Sort(lines)
	return lines
}

// Roles that are killed and started again, one or both, have equal tables: what was opened,
// changed and ended meanwhile, too. The backup's services and servers have another order, and
// more of them.
func TestReplicationKilled(t *testing.T) {
	needRoot(t)
	const table = "-A -t 10.20.0.1:80 -s rr\n-a -t 10.20.0.1:80 -r 172.16.0.1:80 -m\n-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m\n"
	const other = "-A -t 10.20.0.9:80 -s wrr\n-a -t 10.20.0.9:80 -r 172.16.0.2:80 -m\n" +
		"-A -t 10.20.0.1:80 -s rr\n-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m -w 5\n-a -t 10.20.0.1:80 -r 172.16.0.1:80 -m\n"
	virtual := netip.MustParseAddrPort("10.20.0.1:80")
	servers := []netip.AddrPort{netip.MustParseAddrPort("172.16.0.1:80"), netip.MustParseAddrPort("172.16.0.2:80")}
	key := replicationKey(t)
	a, b := newNamespace(t), newNamespace(t)
	connectReplicating(t, a, b)
	withDirector(t, a)
	withDirector(t, b)
	must(t, a, table, "ipvsadm", "-R")
	must(t, b, other, "ipvsadm", "-R")
	master, backup := openTable(t, a), openTable(t, b)

	start := func(ns *host.Namespace, role, listen, to string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command(executable, "sync", role, "--protocol", "imbang", "--listen", listen, "--to", to, "--key-file", key)
		cmd.Stderr = t.Output()
		if err := ns.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	startMaster := func() *exec.Cmd { return start(a, "master", replicatingA, replicatingB) }
	startBackup := func() *exec.Cmd { return start(b, "backup", replicatingB, replicatingA) }
	kill := func(cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	next := 0
	// change opens connections, changes the state of some that there were, and ends others.
	change := func() {
		t.Helper()
		var opened, moved, ended []model.Connection
		for i := max(0, next-100); i < next; i++ {
			c := replicaOf(virtual, servers[i%2], i)
			if i%2 == 0 {
				ended = append(ended, c)
				continue
			}
			c.State, c.Expires = "FIN_WAIT", 2*time.Minute
			moved = append(moved, c)
		}
		for range 300 {
			opened = append(opened, replicaOf(virtual, servers[next%2], next))
			next++
		}
		errs, err := master.Replicate(append(opened, moved...))
		applied(t, errs, err)
		errs, _, err = master.Withdraw(ended)
		applied(t, errs, err)
	}
	equal := func(when string) {
		t.Helper()
		want := connectionsOf(t, master)
		if len(want) < 300 {
			t.Fatalf("%d connections", len(want))
		}
		var got []string
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if got = connectionsOf(t, backup); slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("%s: the backup has %d connections\n%.1000s\nthe master %d\n%.1000s", when, len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
	}

	m, s := startMaster(), startBackup()
	change()
	equal("at first")
	kill(s)
	change()
	s = startBackup()
	equal("the backup was killed")
	kill(m)
	had := connectionsOf(t, backup)
	change()
	if got := connectionsOf(t, backup); !slices.Equal(got, had) {
		t.Errorf("the backup changed from %d to %d connections without a master", len(had), len(got))
	}
	m = startMaster()
	equal("the master was killed")
	kill(m)
	kill(s)
	change()
	startBackup()
	startMaster()
	equal("both were killed")
	change()
	equal("both go on")
	// Each has its server.
	list, err := backup.Services()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[netip.Addr]uint32{}
	for _, one := range list {
		for _, server := range one.Servers {
			counts[server.Addr] += server.Active + server.Inactive
		}
	}
	for i, server := range servers {
		want := uint32(0)
		for _, line := range connectionsOf(t, master) {
			if strings.HasSuffix(line, " "+server.String()) {
				want++
			}
		}
		if want == 0 || counts[server.Addr()] != want {
			t.Errorf("server %d has %d connections on the backup, want %d", i+1, counts[server.Addr()], want)
		}
	}
}
