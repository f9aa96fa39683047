// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testPrefix keeps the namespaces of tests apart from those of real runs.
const testPrefix = "imbang-hosttest"

func needNamespaces(t *testing.T) Run {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	r, err := NewRun(testPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newNamespace(t *testing.T, name string) *Namespace {
	t.Helper()
	n, err := NewNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoNamespacesTalk(t *testing.T) {
	r := needNamespaces(t)
	a, b := newNamespace(t, r.Name("a")), newNamespace(t, r.Name("b"))
	macA, macB := "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	must(t,
		Connect(End{a, "eth0", macA}, End{b, "eth0", macB}, LinkOptions{MTU: 1400, Queues: 2}),
		a.AddAddresses("eth0", netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("fd00:1::1/64")),
		b.AddAddresses("eth0", netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd00:1::2/64")),
		a.AddNeighbours("eth0", macB, netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00:1::2")),
		// b owns a whole network by one route, and reaches a's addresses through it
		b.AddRoutes(Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Dev: "lo", Local: true}),
		a.AddRoutes(Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.1.0.2")}),
	)
	for _, addr := range []string{"10.1.0.2:0", "[fd00:1::2]:0", "10.9.200.7:0"} {
		t.Run(addr, func(t *testing.T) { talk(t, a, b, addr) })
	}
	if mac, err := b.LinkMAC("eth0"); err != nil || mac.String() != macB {
		t.Errorf("b's eth0 has address %s, %v; want %s", mac, err, macB)
	}
	must(t, a.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil && i.MTU != 1400 {
			t.Errorf("a's eth0 has MTU %d, want 1400", i.MTU)
		}
		return err
	}))
}

// talk connects from a to a listener in b.
func talk(t *testing.T, a, b *Namespace, addr string) {
	var l net.Listener
	must(t, b.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}))
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	var c net.Conn
	must(t, a.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		return err
	}))
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v; want hello", got, err)
	}
}

func TestSysctlStaysInside(t *testing.T) {
	r := needNamespaces(t)
	n := newNamespace(t, r.Name("a"))
	read := func(key string) string {
		b, err := os.ReadFile("/proc/sys/net/" + key)
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	before := read("ipv4/ip_default_ttl")
	must(t, n.Sysctl("net.ipv4.ip_default_ttl", "42"), n.Sysctl("net/ipv4/conf/lo/rp_filter", "0"))
	must(t, n.Do(func() error {
		if got := read("ipv4/ip_default_ttl"); got != "42" {
			t.Errorf("inside: ip_default_ttl is %s, want 42", got)
		}
		if got := read("ipv4/tcp_timestamps"); got != "2" {
			t.Errorf("inside: tcp_timestamps is %s, want 2", got)
		}
		return nil
	}))
	if got := read("ipv4/ip_default_ttl"); got != before {
		t.Errorf("outside: ip_default_ttl is %s, was %s", got, before)
	}
	err := n.Sysctl("net.ipv4.no_such", "1")
	if want := fmt.Sprintf("network namespace %s: sysctl net.ipv4.no_such=1: open /proc/sys/net/ipv4/no_such: no such file or directory", n.Name()); err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestCloseKillsWhatRunsInside(t *testing.T) {
	r := needNamespaces(t)
	n := newNamespace(t, r.Name("a"))
	cmd := exec.Command("sleep", "60")
	must(t, n.Start(cmd))
	must(t, n.Close(), n.Close())
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v, want signal: killed", err)
	}
	if _, err := os.Stat(n.Path()); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", n.Path(), err)
	}
	if err := n.Do(func() error { return nil }); err == nil {
		t.Error("entered a removed namespace")
	}
}

func TestManyAddressesQuickly(t *testing.T) {
	r := needNamespaces(t)
	n := newNamespace(t, r.Name("a"))
	var addrs []netip.Prefix
	a := netip.MustParseAddr("10.1.0.1")
	for range 500 {
		addrs = append(addrs, netip.PrefixFrom(a, 32))
		a = a.Next()
	}
	used := func() (all time.Duration) {
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			must(t, syscall.Getrusage(who, &u))
			all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return all
	}
	before := used() // other work of the machine takes time, too
	must(t, n.AddAddresses("lo", addrs...))
	if d := used() - before; d > time.Second {
		t.Errorf("500 addresses took %v of CPU time, want well under a second", d)
	}
}

func TestSweepTakesTheDeadOnly(t *testing.T) {
	r := needNamespaces(t)
	mine := newNamespace(t, r.Name("mine"))
	// A process that is gone by now stands for a crashed run; the second
	// name holds our number with another start time: a reused number.
	gone := exec.Command("true")
	must(t, gone.Run())
	crashed := fmt.Sprintf("%s-%d-12345-abcdef-dir", testPrefix, gone.Process.Pid)
	reused := fmt.Sprintf("%s-%d-1-abcdef-dir", testPrefix, os.Getpid())
	foreign := fmt.Sprintf("%s-notours", testPrefix)
	var inside []*exec.Cmd
	for _, name := range []string{crashed, reused, foreign} {
		n := newNamespace(t, name)
		cmd := exec.Command("sleep", "60")
		must(t, n.Start(cmd))
		inside = append(inside, cmd)
	}
	swept, err := Sweep(testPrefix)
	must(t, err)
	for name, want := range map[string]bool{crashed: true, reused: true, foreign: false, mine.Name(): false} {
		if got := slices.Contains(swept, name); got != want {
			t.Errorf("swept %s: %v, want %v", name, got, want)
		}
		if _, err := os.Stat(filepath.Join(netnsDir, name)); os.IsNotExist(err) != want {
			t.Errorf("%s removed: %v, want %v", name, os.IsNotExist(err), want)
		}
	}
	for _, cmd := range inside[:2] {
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process of a crashed run ended with %v, want signal: killed", err)
		}
	}
	must(t, inside[2].Process.Kill())
	inside[2].Wait()
}

func TestOrphaned(t *testing.T) {
	r, err := NewRun("imbang-lab")
	must(t, err)
	for name, want := range map[string]bool{
		r.Name("dir"):                          false,
		"imbang-lab-4194305-77-abcdef-dir":     true, // above the largest pid
		"imbang-lab-4194305-77-abcdef":         true,
		"imbang-lab-4194305-77-abc":            false,
		"imbang-lab-x-77-abcdef-dir":           false,
		"imbang-lab-4194305-x-abcdef-dir":      false,
		"imbang-lab2-4194305-77-abcdef-dir":    false,
		"somebody-4194305-77-abcdef-dir":       false,
		"imbang-lab-more-4194305-77-abcdef-di": false,
		"":                                     false,
	} {
		if got := Orphaned("imbang-lab", name); got != want {
			t.Errorf("Orphaned(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestNewNamespaceRefuses(t *testing.T) {
	for _, name := range []string{"", "../x", ".x", "a/b"} {
		if n, err := NewNamespace(name); err == nil {
			n.Close()
			t.Errorf("NewNamespace(%q) succeeded", name)
		}
	}
}
