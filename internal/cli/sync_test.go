// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"imbang/internal/command"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
)

// parsed is what the flags of imbang sync say.
func parsed(t *testing.T, args ...string) (synchronize.Config, error) {
	t.Helper()
	var f syncFlags
	c := &cobra.Command{}
	f.register(c)
	c.Flags().Bool(detachedFlag, false, "")
	if err := c.ParseFlags(args[1:]); err != nil {
		return synchronize.Config{}, err
	}
	if _, err := f.role(args[0]); err != nil {
		return synchronize.Config{}, err
	}
	return f.config(args[0])
}

// parsedReplication is what they say with protocol imbang.
func parsedReplication(t *testing.T, args ...string) (replicate.Config, error) {
	t.Helper()
	var f syncFlags
	c := &cobra.Command{}
	f.register(c)
	if err := c.ParseFlags(append(args[1:], "--protocol", "imbang")); err != nil {
		return replicate.Config{}, err
	}
	if _, err := f.role(args[0]); err != nil {
		return replicate.Config{}, err
	}
	return f.replication(args[0])
}

func TestSyncReplication(t *testing.T) {
	want := replicate.Config{
		Role: replicate.Master, Listen: netip.MustParseAddrPort("192.0.2.1:8790"), Interface: "eth1", Group: 7, KeyFile: "/k",
		To: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:9000"), netip.MustParseAddrPort("192.0.2.3:8790")},
	}
	got, err := parsedReplication(t, strings.Fields("master --listen 192.0.2.1 --to 192.0.2.2:9000 --to 192.0.2.3 -i eth1 --group 7 --key-file /k")...)
	if err != nil || !got.Equal(&want) {
		t.Errorf("%+v, %v", got, err)
	}
	for line, want := range map[string]string{
		"both --listen 192.0.2.1 --to 192.0.2.2 --key-file /k":                       "unknown role",
		"master --to 192.0.2.2 --key-file /k":                                        "requires --listen",
		"master --listen 192.0.2.1 --key-file /k":                                    "requires --to",
		"master --listen 192.0.2.1 --to 192.0.2.2":                                   "requires --key-file",
		"master --listen x --to 192.0.2.2 --key-file /k":                             `--listen "x": want`,
		"master --listen 192.0.2.1 --to x --key-file /k":                             `--to "x": want`,
		"master --listen 192.0.2.1 --to 224.0.0.82 --key-file /k":                    "--interface: missing",
		"master --listen 192.0.2.1 --to 192.0.2.2 --key-file /k --group 224.0.0.1":   "want a number",
		"master --listen 192.0.2.1 --to 192.0.2.2 --key-file /k --group 65536":       "want a number",
		"master --listen 192.0.2.1 --to 192.0.2.2 --key-file /k --sync-id 7":         "--sync-id is of protocol linux, and this is imbang",
		"master --listen 192.0.2.1 --to 192.0.2.2 --key-file /k --max-length 1":      "--max-length is of protocol linux",
		"backup --listen 192.0.2.1 --to 192.0.2.2 --key-file /k --port 8848 --ttl 1": "--port is of protocol linux",
	} {
		if c, err := parsedReplication(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", line, c, err)
		}
	}
	for line, want := range map[string]string{
		"master -i eth1 --to 192.0.2.2":       "--to is of protocol imbang, and this is linux",
		"master -i eth1 --key-file /k":        "--key-file is of protocol imbang",
		"master -i eth1 --group 7":            "want a multicast address",
		"master -i eth1 --protocol conntrack": "want linux or imbang",
	} {
		if c, err := parsed(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", line, c, err)
		}
	}
}

func TestSyncConfig(t *testing.T) {
	eth1 := synchronize.Config{Role: "master", Interface: "eth1", Group: netip.MustParseAddr("224.0.0.81"), Port: 8848, TTL: 1}
	all := synchronize.Config{Role: "backup", SyncID: 255, Interface: "lo", MaxLen: 65507, Group: netip.MustParseAddr("ff02::81"), Port: 65535, TTL: 255}
	for _, c := range []struct {
		line string
		want synchronize.Config
	}{
		{"master --interface eth1", eth1},
		{"backup -i lo --sync-id 255 --max-length 65507 --group ff02::81 --port 65535 --ttl 255", all},
	} {
		got, err := parsed(t, strings.Fields(c.line)...)
		if d := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("%s: %v %s", c.line, err, d)
		}
	}
	for _, line := range []string{
		"slave --interface eth1", "master", "master --interface", "master -i eth1 --group 10.0.0.1", "master -i eth1 --group ff02::1%lo",
		"master -i eth1 --group ::ffff:224.0.0.81", "master -i eth1 --port 0", "master -i eth1 --port 65536", "master -i eth1 --ttl 0",
		"master -i eth1 --ttl 256", "master -i eth1 --sync-id 256", "master -i eth1 --max-length 0", "master -i eth1 --max-length 65508",
	} {
		if c, err := parsed(t, strings.Fields(line)...); err == nil {
			t.Errorf("%s: accepted as %+v", line, c)
		}
	}
}

// What ipvsadm was told arrives at the process that it starts.
func TestSyncArgs(t *testing.T) {
	for _, want := range []synchronize.Config{
		{Role: "master", SyncID: 7, Interface: "eth1", MaxLen: 1000, Group: netip.MustParseAddr("ff02::81"), Port: 9000, TTL: 3},
		{Role: "backup", SyncID: 0, Interface: "-odd=name", Group: netip.MustParseAddr("239.0.0.1"), Port: 1, TTL: 255},
	} {
		args := syncArgs(want)
		if args[0] != "sync" {
			t.Fatal(args)
		}
		got, err := parsed(t, args[1:]...)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("%q: %v %s", args, err, d)
		}
	}
	// Defaults are those of imbang sync, as they are those of Linux.
	got, err := parsed(t, syncArgs(synchronize.Config{Role: "master", Interface: "eth1"})[1:]...)
	if err != nil || got.Port != 8848 || got.TTL != 1 || got.Group.String() != "224.0.0.81" || got.MaxLen != 0 || got.SyncID != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSyncUsage(t *testing.T) {
	for line, want := range map[string]string{
		"sync":                        "accepts 1 arg(s), received 0: imbang sync master|backup|pair ",
		"sync slave -i lo":            `unknown role "slave": want master, backup or pair`,
		"sync master":                 "requires --interface",
		"sync master -i lo --log xml": `unknown value "xml" of --log`,
	} {
		var stdout, stderr strings.Builder
		status := command.Execute(t.Context(), newRootCommand(), strings.Fields(line), nil, &stdout, &stderr)
		if status != command.StatusUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: status %d, %q", line, status, stderr.String())
		}
	}
}

// The error of a process is that of the one that started it, with what the kernel gave.
func TestSyncOutcome(t *testing.T) {
	through := func(err error) error {
		t.Helper()
		read, write, pipe := os.Pipe()
		if pipe != nil {
			t.Fatal(pipe)
		}
		defer read.Close()
		to := &outcomeTo{write}
		if err == nil {
			to.ready()
		}
		to.failed(err)
		to.failed(errors.New("a second report"))
		var o outcome
		if err := json.NewDecoder(read).Decode(&o); err != nil {
			t.Fatal(err)
		}
		return o.err()
	}
	if err := through(nil); err != nil {
		t.Error(err)
	}
	if err := through(fmt.Errorf("connect: %w", os.NewSyscallError("connect", syscall.ENETUNREACH))); !errors.Is(err, syscall.ENETUNREACH) || err.Error() != "connect: connect: network is unreachable" {
		t.Error(err)
	}
	if err := through(&running.Runs{Role: running.Role{Role: "master", PID: 5}}); !errors.As(err, new(*running.Runs)) || !strings.Contains(err.Error(), "process 5") {
		t.Error(err)
	}
	if err := through(errors.New("no director")); err == nil || err.Error() != "no director" || errors.As(err, new(syscall.Errno)) {
		t.Error(err)
	}
}
