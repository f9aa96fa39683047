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
	printProcessRoles(&out, []running.Role{
		{Role: "backup", PID: 77, Interface: "eth1", SyncID: 3, Group: netip.MustParseAddr("224.0.0.81"), Port: 9000, Since: since},
		{Role: running.Replication, PID: 78, Since: since, Replicates: &running.Replicates{As: "master", Listen: netip.MustParseAddrPort("10.0.0.1:8790"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:8790")}, Group: 5}},
	})
	if want := "synchronization backup\tprocess 77 since " + clock(since) + "\teth1, 224.0.0.81:9000, sync ID 3\n" +
		"replication master\tprocess 78 since " + clock(since) + "\t10.0.0.1:8790 to 10.0.0.2:8790, group 5\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestPrintReplication(t *testing.T) {
	now := time.Now()
	var out strings.Builder
	for _, r := range []api.Replication{
		{
			Role: "master", State: "running", Since: now.Add(-time.Minute), Listen: "10.0.0.1:8790", To: []string{"10.0.0.2:8790", "10.0.0.3:8790"}, Group: 5,
			Entries: 100, Deletions: 90, Last: now.Add(-3 * time.Second), Bulks: 2, Lost: 4, Refused: []api.ReplicationRefused{{Reason: "forged", Count: 6}, {Reason: "length"}},
			Receivers: []api.ReplicationReceiver{{Address: "10.0.0.2:8790", Synced: true}, {Address: "10.0.0.3:8790", Behind: 7, Lacking: 4, Missing: []string{"service A", "service B server C", "service D", "service E"}}},
		},
		{
			Role: "backup", State: "running", Since: now, Listen: "10.0.0.2:8790", To: []string{"224.0.0.82:8790"}, Master: "10.0.0.1:8790", Synced: true, Behind: 3, Waiting: 2, Missing: []api.SyncMissing{{Service: "A", Server: "C", Entries: 2}},
			Differences: []string{"10.20.0.1:80/tcp, server 172.16.0.2:80: only the sender has it"},
		},
		{Role: "backup", State: "running", Since: now, Listen: "10.0.0.2:8790", To: []string{"10.0.0.1:8790"}},
		{Role: "backup", State: "failed", Since: now, Listen: "10.0.0.2:8790", To: []string{"10.0.0.1:8790"}, Error: "a\nb", Retry: now.Add(4 * time.Second)},
	} {
		printReplication(&out, &r, now)
	}
	want := "replication master\trunning for 1m00s\t10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 5\t100 entries, 90 deletions, the last 3s ago; 2 transfers of the table; 4 events lost; 6 refused (forged)\n" +
		"  backup\t10.0.0.2:8790\t0 datagrams behind, has the whole table\n" +
		"  backup\t10.0.0.3:8790\t7 datagrams behind, does not have the whole table yet, LACKS 4 entries: missing there: service A, service B server C, service D and 1 more\n" +
		"replication backup\trunning for 0s\t10.0.0.2:8790 to 224.0.0.82:8790, group 0\tfollows 10.0.0.1:8790; has the whole table; 0 entries, 0 deletions; 3 datagrams behind; 2 wait for a service, server or template\n" +
		"  missing\tC of A\t2 connections wait for it\n" +
		"  differs from the master\t10.20.0.1:80/tcp, server 172.16.0.2:80: only the sender has it\n" +
		"replication backup\trunning for 0s\t10.0.0.2:8790 to 10.0.0.1:8790, group 0\tNO MASTER; 0 entries, 0 deletions; 0 datagrams behind\n" +
		"replication backup\tFAILED for 0s\t10.0.0.2:8790 to 10.0.0.1:8790, group 0\t0 entries, 0 deletions; 0 datagrams behind\n" +
		"  a; b; it is started again in 4s\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

func TestPrintBarrier(t *testing.T) {
	var out strings.Builder
	if err := printBarrier(&out, &api.BarrierReply{Receivers: []api.ReplicationReceiver{
		{Address: "10.0.0.2:8790", Synced: true}, {Address: "10.0.0.3:8790", Synced: true, Behind: 7}, {Address: "10.0.0.4:8790", Behind: 1},
		{Address: "10.0.0.5:8790", Synced: true, Lacking: 9, Missing: []string{"service A"}},
	}}, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	want := "10.0.0.3:8790  BEHIND      by 7 datagrams\n" +
		"10.0.0.4:8790  BEHIND      by 1 datagrams, does not have the whole table\n" +
		"10.0.0.5:8790  INCOMPLETE  has applied everything, but could not enter 9 entries: missing there: service A\n" +
		"10.0.0.2:8790  has applied everything\n" +
		"2 of 4 backups have not applied everything within 2s\n" +
		"1 of 4 backups have not entered everything: their status has what is missing\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}
