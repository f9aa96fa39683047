// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/sync/running"
)

func TestPrintSync(t *testing.T) {
	now := time.Now()
	var out strings.Builder
	printSync(&out, api.Synchronization{
		Role: "master", State: "running", Since: now.Add(-time.Minute), Interface: "eth1", SyncID: 7, Group: "ff02::81", Port: 8848,
		Messages: 12, Entries: 340, Last: now.Add(-2 * time.Second), Lost: 3,
		Dropped: []api.SyncDropped{{Reason: "queue_full", Of: "entries", Count: 5}, {Reason: "send_error", Of: "messages"}},
	}, now)
	printSync(&out, api.Synchronization{
		Role: "backup", State: "failed", Since: now, Interface: "eth1", Group: "224.0.0.81", Port: 8848, Error: "a\nb", Retry: now.Add(4 * time.Second), Unbound: 4,
		Missing: []api.SyncMissing{{Service: "10.20.0.1:80/tcp", Server: "172.16.0.2:80", Entries: 4}, {Service: "fwmark 3", Entries: 1}},
	}, now)
	want := "synchronization master\trunning for 1m00s\teth1, [ff02::81]:8848, sync ID 7\t12 messages, 340 connections, the last 2s ago; 3 lost; 5 entries dropped (queue_full)\n" +
		"synchronization backup\tFAILED for 0s\teth1, 224.0.0.81:8848, sync ID 0\t0 messages, 0 connections; 4 wait for their server\n" +
		"  a; b; it is started again in 4s\n" +
		"  missing\t172.16.0.2:80 of 10.20.0.1:80/tcp\t4 connections wait for it\n  missing\tfwmark 3\t1 connections wait for it\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

func TestPrintProcessRoles(t *testing.T) {
	since := time.Now()
	var out strings.Builder
	printProcessRoles(&out, []running.Role{{Role: "backup", PID: 77, Interface: "eth1", SyncID: 3, Group: netip.MustParseAddr("224.0.0.81"), Port: 9000, Since: since}})
	if want := "synchronization backup\tprocess 77 since " + clock(since) + "\teth1, 224.0.0.81:9000, sync ID 3\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
