// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/command"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/handover"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// linked are two network namespaces with a device eth0 each that lead to each other, ready
// for IPv6.
func linked(t *testing.T) (ns, other *host.Namespace) {
	t.Helper()
	ns, other = testenv.Namespace(t, "one"), testenv.Namespace(t, "other")
	for _, n := range []*host.Namespace{ns, other} {
		if err := n.Sysctl("net.ipv6.conf.default.accept_dad", "0"); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Connect(host.End{NS: ns, Name: "eth0"}, host.End{NS: other, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ready, deadline := false, time.Now().Add(time.Minute); !ready; time.Sleep(10 * time.Millisecond) {
		if err := ns.Do(func() error {
			link, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			addresses, err := link.Addrs()
			ready = len(addresses) > 0 // its link-local one
			return err
		}); err != nil || time.Now().After(deadline) {
			t.Fatal("eth0 is not ready", err)
		}
	}
	return ns, other
}

// migrateLine executes one command line of imbang migrate.
func migrateLine(t *testing.T, line string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = command.Execute(t.Context(), newRootCommand(), strings.Fields("migrate "+line), strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// What cannot be meant is refused before a director is looked for.
func TestMigrateCommandLines(t *testing.T) {
	ns := testenv.Namespace(t, "lines") // where none can do harm
	for line, want := range map[string]string{
		"receive":                                   "nothing to receive",
		"receive --table - --connections -":         "cannot both read standard input",
		"receive --table x --sync-id 7":             "--sync-id requires --interface",
		"receive --interface eth0 --group 10.0.0.1": "want a multicast address",
		"receive x":                                 "unknown command",
		"send":                                      "requires --interface",
		"send -i eth0 --rate 0":                     "--rate 0",
		"send -i eth0 --rate 10000001":              "--rate 10000001",
		"send -i eth0 --repeat 0":                   "--repeat 0",
		"send -i eth0 --repeat 101":                 "--repeat 101",
		"send -i eth0 --port 70000":                 `invalid argument "70000" for "--port" flag: want 1 to 65535`,
		"send -i eth0 --sync-id 300":                `invalid argument "300" for "--sync-id" flag: want 0 to 255`,
		"send -i eth0 --sync-id x":                  "want 0 to 255",
		"send -i eth0 --port 0":                     `invalid argument "0" for "--port" flag: want 1 to 65535`,
		"send -i eth0 -o xml":                       "xml",
		"send -i lo":                                "--interface lo: a loopback device",
		"receive -i lo":                             "--interface lo: a loopback device",
		"receive -i eth0 --protocol imbang":         "unknown flag: --protocol",
		"receive -i eth0 --listen 192.0.2.1":        "unknown flag: --listen",
		"send -i eth0 --to 192.0.2.2":               "unknown flag: --to",
		"send -i eth0 --key-file /etc/imbang/key":   "unknown flag: --key-file",
		"take --device eth0":                        "requires at least 1 arg",
		"take 192.0.2.80":                           "--device is required",
		"take 192.0.2.300 --device eth0":            "is not an address",
		"take fe80::1%eth0 --device eth0":           "is not an address",
		"take 192.0.2.80/33 --device eth0":          "is not an address",
		"take ::ffff:192.0.2.80 --device eth0":      "cannot be a virtual address",
		"take 224.0.0.1 --device eth0":              "cannot be a virtual address",
		"take 127.0.0.1 --device eth0":              "cannot be a virtual address",
		"take ::/0 --device eth0":                   "cannot be a virtual address",
		"take 192.0.2.80 192.0.2.80/24 -d eth0":     "given twice",
		"take 192.0.2.80 -d eth0 --announcements 0": "--announcements 0",
		"take 192.0.2.0/24 -d eth0":                 "is the address of a network",
		"take 2001:db8::/64 -d eth0":                "is the address of a network",
		"release 192.0.2.80":                        "--device is required",
		"move":                                      "unknown command",
	} {
		var status int
		var errs string
		if err := ns.Do(func() error { status, _, errs = migrateLine(t, line); return nil }); err != nil {
			t.Fatal(err)
		}
		if status != command.StatusUsage || !strings.Contains(errs, want) {
			t.Errorf("migrate %s: status %d, %s, want %s", line, status, errs, want)
		}
	}
}

// Addresses are added once, announced, and removed with the prefix length that they have.
func TestMigrateAddresses(t *testing.T) {
	ns, other := linked(t)
	if err := other.AddAddresses("eth0", netip.MustParsePrefix("192.0.2.90/24"), netip.MustParsePrefix("2001:db8::90/64")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line   string
		status int
		out    string
	}{
		{"take 192.0.2.80/24 2001:db8::80 -d eth0 --announcements 1", 0, "192.0.2.80/24 on eth0: added, announced 1 time\n2001:db8::80/128 on eth0: added, announced 1 time\n"},
		{"take 192.0.2.80 -d eth0 --announcements 2", 0, "192.0.2.80/24 on eth0: there already, announced 2 times\n"},
		{"release 192.0.2.80/32 -d eth0", 3, "device eth0 has 192.0.2.80/24, not 192.0.2.80/32"},
		{"release 192.0.2.80 2001:db8::80/128 192.0.2.81 -d eth0", 0, "192.0.2.80/24 on eth0: removed\n2001:db8::80/128 on eth0: removed\n192.0.2.81/32 on eth0: not there\n"},
		{"release 192.0.2.80 -d eth0 -o json", 0, `"changed": false`},
		{"take 192.0.2.81 192.0.2.90 -d eth0 --announcements 1", 3, " has 192.0.2.90: remove it there first (ip address del), or give --force; nothing was added"},
		{"take 2001:db8::90 -d eth0 --announcements 1", 3, " has 2001:db8::90: remove it there first"},
		{"release 192.0.2.81 -d eth0", 0, "192.0.2.81/32 on eth0: not there\n"},
		{"take 192.0.2.90 -d eth0 --announcements 1 --force", 0, "192.0.2.90/32 on eth0: added, announced 1 time\n"},
		{"take 192.0.2.80 -d eth9", 3, `no such device "eth9"`},
		{"take 192.0.2.80 -d lo --announcements 1", 3, "lo has no Ethernet address"},
	} {
		var status int
		var out, errs string
		if err := ns.Do(func() error { status, out, errs = migrateLine(t, c.line); return nil }); err != nil {
			t.Fatal(err)
		}
		if status != c.status || !strings.Contains(out+errs, c.out) {
			t.Errorf("migrate %s: status %d, %q, %q, want %d, %q", c.line, status, out, errs, c.status, c.out)
		}
	}
}

// An address that cannot be added does not keep others from being announced and reported.
func TestMigrateTakeInPart(t *testing.T) {
	ns, _ := linked(t)
	if err := ns.Sysctl("net.ipv6.conf.eth0.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	var status int
	var out, errs string
	if err := ns.Do(func() error {
		status, out, errs = migrateLine(t, "take 192.0.2.80/24 2001:db8::80 192.0.2.81 -d eth0 --announcements 1 --force")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := "192.0.2.80/24 on eth0: added, announced 1 time\n192.0.2.81/32 on eth0: added, announced 1 time\n"
	if status != command.StatusFailed || out != want || !strings.Contains(errs, "2001:db8::80") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// A release that would remove an address which was not given removes none. Given together,
// and with promote_secondaries, the addresses go alone.
func TestMigrateReleaseKeepsOthers(t *testing.T) {
	ns, _ := linked(t)
	sysctl := func(value string) {
		t.Helper()
		for _, name := range []string{"all", "eth0"} {
			if err := ns.Sysctl("net.ipv4.conf."+name+".promote_secondaries", value); err != nil {
				t.Fatal(err)
			}
		}
	}
	sysctl("0")
	add := func(list ...string) {
		t.Helper()
		for _, p := range list {
			if err := ns.AddAddresses("eth0", netip.MustParsePrefix(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func() (list string) {
		t.Helper()
		if err := ns.Do(func() error {
			d, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			all, err := d.Addrs()
			for _, a := range all {
				if strings.Contains(a.String(), ".") {
					list += a.String() + " "
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}
	release := func(line string, want int, text string) {
		t.Helper()
		var status int
		var out, errs string
		if err := ns.Do(func() error { status, out, errs = migrateLine(t, "release -d eth0 "+line); return nil }); err != nil {
			t.Fatal(err)
		}
		if status != want || !strings.Contains(out+errs, text) {
			t.Errorf("release %s: status %d, %q, %q, want %d, %q", line, status, out, errs, want, text)
		}
	}
	add("192.0.2.80/24", "192.0.2.3/24", "192.0.2.81/32", "198.51.100.1/24")
	before := has()
	release("192.0.2.81 192.0.2.80", 3, "Linux would remove 192.0.2.3/24 with 192.0.2.80/24, the first address of its network: sysctl -w net.ipv4.conf.eth0.promote_secondaries=1")
	if got := has(); got != before {
		t.Errorf("after a refusal %s, was %s", got, before)
	}
	release("192.0.2.80 192.0.2.3 192.0.2.81", 0, "192.0.2.80/24 on eth0: removed\n192.0.2.3/24 on eth0: removed\n192.0.2.81/32 on eth0: removed\n")
	add("192.0.2.80/24", "192.0.2.3/24")
	release("192.0.2.3", 0, "removed") // no other goes with it
	add("192.0.2.3/24")
	sysctl("1")
	release("192.0.2.80", 0, "192.0.2.80/24 on eth0: removed")
	if got := has(); got != "198.51.100.1/24 192.0.2.3/24 " {
		t.Errorf("at the end %s", got)
	}
}

// Ctrl-C ends announcements; the message says that the addresses are there.
func TestMigrateTakeIsInterrupted(t *testing.T) {
	ns, _ := linked(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	status := 0
	if err := ns.Do(func() error {
		status = command.Execute(ctx, newRootCommand(), strings.Fields("migrate take 192.0.2.80 -d eth0"), strings.NewReader(""), &bytes.Buffer{}, &errs)
		has, err := host.HasAddress("eth0", netip.MustParseAddr("192.0.2.80"))
		if !has {
			t.Error("the address is not there")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if status != command.StatusFailed || !strings.Contains(errs.String(), "interrupted: the addresses are on the device, and were announced 1 time") {
		t.Errorf("status %d, %s", status, &errs)
	}
}

func TestReceivedReport(t *testing.T) {
	r := receivedReport{Backup: backupRuns,
		Table: &handover.Table{Services: handover.Edits{Added: 1}, Servers: handover.Edits{Existed: 2}, Refused: 2, Refusals: []handover.Refusal{{Line: 3, Text: "-D", Why: "no"}}},
		Connections: &handover.Connections{Entries: 9, Entered: 4, Existed: 2, Guessed: 1, Refused: 3,
			Reasons: map[handover.Reason]int{handover.ReasonServer: 2, handover.ReasonLine: 1}, Refusals: []handover.Refusal{{Line: 7, Text: "x", Why: "y"}}},
	}
	var b bytes.Buffer
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `services: 1 added, 0 there already
servers: 0 added, 2 there already
table: 2 lines refused
  line 3: -D: no
  1 more were refused
backup role: running
connections: 4 entered, 2 there already, 3 refused
  1 entered at the lowest mark of several fwmark services with their server
  1 refused: line
  2 refused: no_server
  line 7: x: y
  2 more were refused
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The last round counts, the most frequent reason is first.
func TestSentReport(t *testing.T) {
	var r sentReport
	r.add(&synchronize.Transfer{Entries: 5, Messages: 2, Bytes: 200, Refused: map[string]uint64{"a": 9}}, true)
	r.add(&synchronize.Transfer{Entries: 6, Messages: 2, Bytes: 210, Refused: map[string]uint64{"a": 1, "b": 3, "c": 1}}, true)
	r.Seconds = 1.25
	var b bytes.Buffer
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	const want = "6 entries sent 2 times: 4 messages, 410 bytes in 1.2 s\n3 not sent: b\n1 not sent: a\n1 not sent: c\n"
	if b.String() != want || r.Refused != 5 {
		t.Errorf("%d refused, got\n%s\nwant\n%s", r.Refused, b.String(), want)
	}
	r.add(&synchronize.Transfer{Entries: 1, Messages: 1, Bytes: 44}, false)
	b.Reset()
	if err := r.print(&b); err != nil || b.String() != "1 entries sent in round 3, which is not complete: 5 messages, 454 bytes in 1.2 s\n" {
		t.Errorf("%v, %s", err, &b)
	}
}

// Input that never comes ends with the context, and a file that is not there is named.
func TestReadInput(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	if _, err := readInput(ctx, "-", r); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
	name := filepath.Join(t.TempDir(), "listing")
	if _, err := readInput(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readInput(t.Context(), name, nil); err != nil || string(text) != "text" {
		t.Error(fmt.Sprintf("%q", text), err)
	}
}
