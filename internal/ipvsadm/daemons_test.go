// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// fakeDevice is a network device of a recording.
type fakeDevice struct {
	MTU         int
	Unreachable []string // families without a route to multicast groups: "IPv4", "IPv6"
}

// fakeDaemons is what start_sync_thread and stop_sync_thread of Linux 6.1 do, as their
// users see it.
type fakeDaemons struct {
	devices map[string]fakeDevice
	running []Daemon
}

func (f *fakeDaemons) find(role string) int {
	for i, d := range f.running {
		if d.Role == role {
			return i
		}
	}
	return -1
}

func (f *fakeDaemons) Start(d Daemon) error {
	device, there := f.devices[d.Interface]
	if !there {
		return syscall.ENODEV
	}
	if f.find(d.Role) >= 0 {
		return ErrDaemonRuns
	}
	if !d.Group.IsValid() {
		d.Group = netip.MustParseAddr("224.0.0.81")
	}
	family, headers := "IPv4", 20+8
	if d.Group.Is6() {
		family, headers = "IPv6", 40+8
	}
	mtu, shortest := 1500, 1
	if d.Role == "backup" {
		mtu, shortest = min(max(device.MTU, 1500), 65535), 1024
	}
	d.MaxLen = cmp.Or(d.MaxLen, mtu-headers)
	d.MaxLen = min(max(d.MaxLen, shortest), 65535-headers)
	d.Port, d.TTL = cmp.Or(d.Port, 8848), cmp.Or(d.TTL, 1)
	for _, no := range device.Unreachable {
		if no == family && d.Role == "master" { // a backup joins the group and needs no route
			return syscall.ENETUNREACH
		}
	}
	f.running = append(f.running, d)
	return nil
}

func (f *fakeDaemons) Stop(role string) error {
	i := f.find(role)
	if i < 0 {
		return ErrNoDaemon
	}
	f.running = append(f.running[:i], f.running[i+1:]...)
	return nil
}

func (f *fakeDaemons) List() ([]Daemon, error) { return f.running, nil }

// brokenDaemons fails in every way.
type brokenDaemons struct{ err error }

func (b brokenDaemons) Start(Daemon) error      { return b.err }
func (b brokenDaemons) Stop(string) error       { return b.err }
func (b brokenDaemons) List() ([]Daemon, error) { return nil, b.err }

func TestDaemonErrors(t *testing.T) {
	refused := errors.New("the role belongs to imbang run")
	for _, c := range []struct {
		line   string
		err    error
		status int
		stderr string
	}{
		{"--start-daemon master --mcast-interface eth0", syscall.ENETUNREACH, 255, "Network is unreachable\n"},
		{"--start-daemon master --mcast-interface eth0", refused, 255, "ipvsadm: the role belongs to imbang run\n"},
		{"--stop-daemon backup", refused, 255, "ipvsadm: the role belongs to imbang run\n"},
		{"--stop-daemon backup", syscall.EPERM, 255, "Permission denied (you must be root)\n"},
		{"-L --daemon", refused, 1, "ipvsadm: the role belongs to imbang run\n"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(strings.Fields(c.line), nil, &stdout, &stderr, newFake().open, brokenDaemons{c.err}, testNames())
		if status != c.status || stderr.String() != c.stderr || stdout.Len() != 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want %q", c.line, status, &stdout, &stderr, c.stderr)
		}
	}
}

// A daemon can be stopped where the table cannot be opened, and is not started there.
func TestDaemonsWithoutTable(t *testing.T) {
	daemons := &fakeDaemons{devices: map[string]fakeDevice{"eth0": {MTU: 1500}}, running: []Daemon{{Role: "master"}}}
	open := func() (Table, error) { return nil, errors.New("not loaded") }
	for _, c := range []struct {
		line   string
		status int
		stderr string
	}{
		{"--stop-daemon master", 0, ""},
		{"--start-daemon master --mcast-interface eth0", 255, "ipvsadm: not loaded\n"},
		{"-L --daemon", 255, "ipvsadm: not loaded\n"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(strings.Fields(c.line), nil, &stdout, &stderr, open, daemons, testNames())
		if status != c.status || stderr.String() != c.stderr || len(daemons.running) != 0 {
			t.Errorf("%q: status %d, stderr %q, want %q; running %v", c.line, status, &stderr, c.stderr, daemons.running)
		}
	}
}
