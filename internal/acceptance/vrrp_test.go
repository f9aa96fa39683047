// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// vrrpNode is a process of imbang vrrp.
type vrrpNode struct {
	testing.TB
	ns      *host.Namespace
	file    string
	cmd     *exec.Cmd
	log     *bytes.Buffer
	address netip.Addr
}

// newVRRPNodes are two directors on a link.
func newVRRPNodes(t testing.TB) (a, b *vrrpNode) {
	t.Helper()
	needRoot(t)
	nodes := [2]*vrrpNode{}
	for i := range nodes {
		nodes[i] = &vrrpNode{TB: t, ns: testenv.Namespace(t, string("ab"[i])), file: filepath.Join(t.TempDir(), "imbang.yaml"), address: netip.AddrFrom4([4]byte{10, 20, 0, byte(11 + i)})}
	}
	if err := host.Connect(host.End{NS: nodes[0].ns, Name: "eth0"}, host.End{NS: nodes[1].ns, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if err := n.ns.AddAddresses("eth0", netip.PrefixFrom(n.address, 24)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if n.cmd != nil {
				n.end(syscall.SIGKILL)
			}
			if t.Failed() && n.log != nil {
				t.Logf("log of %s:\n%s", n.ns.Name(), n.log)
			}
		})
	}
	return nodes[0], nodes[1]
}

func (n *vrrpNode) configure(format string, args ...any) {
	n.Helper()
	if err := os.WriteFile(n.file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n *vrrpNode) start() {
	n.Helper()
	n.log = &bytes.Buffer{}
	n.cmd = exec.Command(executable, "vrrp", "-c", n.file)
	n.cmd.Stderr = n.log
	if err := n.ns.Start(n.cmd); err != nil {
		n.Fatal(err)
	}
}

// end ends the process by a signal, and returns its status.
func (n *vrrpNode) end(s os.Signal) int {
	_ = n.cmd.Process.Signal(s)
	_ = n.cmd.Wait()
	status := n.cmd.ProcessState.ExitCode()
	n.cmd = nil
	return status
}

// status is what imbang vrrp status says; nil: it does not run (yet).
func (n *vrrpNode) status() *process.Status {
	n.Helper()
	o := imbang(n.TB, n.ns, "", "vrrp", "status", "-o", "json")
	if o.status != 0 {
		return nil
	}
	s := &process.Status{}
	if err := json.Unmarshal([]byte(o.stdout), s); err != nil {
		n.Fatal(err)
	}
	return s
}

func (n *vrrpNode) await(what string, f func(s *process.Status) bool) *process.Status {
	n.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s := n.status()
		if s != nil && f(s) {
			return s
		}
		if time.Now().After(deadline) {
			n.Fatalf("%s: %+v, %+v", what, s, imbang(n.TB, n.ns, "", "vrrp", "status"))
		}
	}
}

func inState(state string) func(s *process.Status) bool {
	return func(s *process.Status) bool { return s.Groups[0].State == state }
}

// Two processes elect a master. SIGHUP and SIGUSR2 make no transition, SIGTERM hands over at
// once, and a process that was killed is replaced and comes back.
func TestVRRP(t *testing.T) { testenv.Patient(t, testVRRP) }

func testVRRP(t testing.TB) {
	const group = "vrrp:\n  groups:\n    - name: web\n      priority: %d\n      interval: 100 ms\n      routers: [{device: eth0, id: 51, addresses: [10.20.0.1/24%s]}]\n"
	a, b := newVRRPNodes(t)
	a.configure(group, 150, "")
	b.configure(group, 100, "")
	a.start()
	before := a.await("master", inState("master"))
	b.start()
	b.await("backup", func(s *process.Status) bool { return s.Groups[0].Routers[0].Master == a.address.String() })
	if before.NotRealTime != "" {
		t.Logf("not real-time: %s", before.NotRealTime)
	}
	text := imbang(t, a.ns, "", "vrrp", "status").stdout
	for _, want := range []string{"\nweb  ", "master for ", "(silence)", "priority 150", "interval 100 ms", "router 51 on eth0", "10.20.0.1/24", "10.20.0.11 by multicast"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if o := imbang(t, a.ns, "", "vrrp", "-c", a.file); o.status != 3 || o.stderr != "imbang: imbang vrrp runs already in this network namespace (imbang vrrp status shows it)\n" {
		t.Errorf("%+v", o)
	}

	a.configure(group, 150, ", 10.20.0.2/24")
	_ = a.cmd.Process.Signal(syscall.SIGHUP)
	a.await("the reload", func(s *process.Status) bool { return len(s.Groups[0].Routers[0].Addresses) == 2 })
	a.configure("vrrp: {}\n")
	_ = a.cmd.Process.Signal(syscall.SIGHUP)
	refused := a.await("the refusal", func(s *process.Status) bool { return s.ReloadError != "" })
	if want := "imbang.yaml:1:7: vrrp: has no groups"; !strings.Contains(refused.ReloadError, want) || refused.Groups[0].State != "master" {
		t.Errorf("%+v", refused)
	}
	a.configure(group, 150, ", 10.20.0.2/24")

	anything := func(*process.Status) bool { return true }
	for range 5 {
		last := a.await("its state", anything)
		_ = a.cmd.Process.Signal(syscall.SIGUSR2)
		now := a.await("the next program", func(s *process.Status) bool { return s.Since.After(last.Since) })
		if g := now.Groups[0]; now.PID != before.PID || g.State != "master" || g.Counts.Became != 0 || g.Counts.Stalls != 0 {
			t.Errorf("%+v", now)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if g := b.await("its state", anything).Groups[0]; g.State != "backup" || g.Counts.Became != 0 {
		t.Errorf("%+v", g)
	}

	if status := a.end(syscall.SIGTERM); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if s := b.await("the other one is master", inState("master")); s.Groups[0].Cause != "master resigned" {
		t.Errorf("%+v", s)
	}
	if o := imbang(t, a.ns, "", "vrrp", "status"); o.status != 3 || !strings.Contains(o.stderr, "imbang vrrp does not run in this network namespace") {
		t.Errorf("%+v", o)
	}
	a.start()
	a.await("master again", inState("master"))
	b.await("backup again", inState("backup"))
	a.end(syscall.SIGKILL)
	if s := b.await("it takes over", inState("master")); s.Groups[0].Cause != "silence" {
		t.Errorf("%+v", s)
	}
	a.start()
	a.await("master once more", inState("master"))
	b.await("backup once more", inState("backup"))
	await(t, "the backup gives up the address", func() error {
		return b.ns.Do(func() error {
			if has, err := host.HasAddress("eth0", netip.MustParseAddr("10.20.0.1")); err != nil || has {
				return fmt.Errorf("the backup has the address: %w", err)
			}
			return nil
		})
	})
}

// A configuration without groups, or that is not valid, is refused with one line.
func TestVRRPRefused(t *testing.T) {
	a, _ := newVRRPNodes(t)
	for text, want := range map[string]string{
		"services: []\n": "imbang: " + a.file + " has no section vrrp: write what moves between the directors there\n",
		"vrrp: {groups: [{name: web, routers: [{device: eth0, id: 0, addresses: [10.20.0.1/24]}]}]}\n": "imbang: " + a.file +
			":1:58: vrrp.groups[0].routers[0].id: 0 is out of range: want 1 to 255\n",
	} {
		a.configure("%s", text)
		if o := imbang(t, a.ns, "", "vrrp", "-c", a.file); o.status != 3 || o.stderr != want {
			t.Errorf("%+v, want %q", o, want)
		}
	}
	if o := imbang(t, a.ns, "", "vrrp", "statsu"); o.status != 2 {
		t.Errorf("%+v", o)
	}
}
