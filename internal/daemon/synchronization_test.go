// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/keep"
)

// Failures are one alarm, however often a role is started again.
func TestSyncAlarms(t *testing.T) { synctest.Test(t, syncAlarms) } // no time passes

func syncAlarms(t *testing.T) {
	log, err := events.Open(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &Daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}, events: log, alarms: map[string]api.Alarm{}}
	master := keep.Role{Config: synchronize.Config{Role: synchronize.RoleMaster, Interface: "eth1"}, Progress: keep.Progress{State: keep.Failed, Err: errors.New("no such device")}}
	for i := range 3 {
		master.Retry = time.Now().Add(time.Duration(i) * time.Second)
		d.noteRoles([]keep.Change{{Role: master, Text: "failed"}})
	}
	if a := d.alarms["synchronization-master"]; len(d.alarms) != 1 || a.Text != "no such device. The role is started again" {
		t.Errorf("%+v", d.alarms)
	}
	master.State, master.Err = keep.Running, nil
	d.noteRoles([]keep.Change{{Role: master, Text: "runs on eth1"}})
	if len(d.alarms) != 0 {
		t.Errorf("%+v", d.alarms)
	}
	var got []string
	for _, e := range log.Last(10) {
		got = append(got, string(e.Kind)+" "+e.Text)
	}
	want := []string{"alarm synchronization-master: no such device. The role is started again", "alarm-ended synchronization-master: after 0s", "sync master: runs on eth1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSyncStatus(t *testing.T) {
	server := netip.MustParseAddrPort("172.16.0.2:80")
	backup := keep.Role{
		Config: synchronize.Config{Role: synchronize.RoleBackup, Interface: "eth1", SyncID: 7}, Progress: keep.Progress{State: keep.Failed, Err: errors.New("gone")}, Counts: &synchronize.Counts{},
		Missing: []synchronize.Missing{{Service: "10.20.0.1:80/tcp", Server: server, Entries: 4}, {Service: "fwmark 3", Entries: 1}},
	}
	backup.Counts.Messages.Add(5)
	backup.Counts.Unbound.Add(2)
	s := syncRole(backup)
	if s.Role != "backup" || s.Error != "gone" || s.Group != "224.0.0.81" || s.Port != 8848 || s.TTL != 1 || s.SyncID != 7 || s.Messages != 5 || s.Unbound != 2 || !s.Last.IsZero() {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([]api.SyncMissing{{Service: "10.20.0.1:80/tcp", Server: "172.16.0.2:80", Entries: 4}, {Service: "fwmark 3", Entries: 1}}, s.Missing); diff != "" {
		t.Error(diff)
	}
	has := func(s api.Synchronization, reason, of string) bool {
		for _, d := range s.Dropped {
			if d.Reason == reason {
				return d.Of == of
			}
		}
		return false
	}
	master := backup
	master.Config.Role, master.Counts = synchronize.RoleMaster, &synchronize.Counts{}
	m := syncRole(master)
	if !has(s, "syncid", "messages") || !has(s, "refused", "entries") || has(s, "queue_full", "entries") || !has(m, "queue_full", "entries") || !has(m, "send_error", "messages") || has(m, "syncid", "messages") {
		t.Errorf("%+v\n%+v", s.Dropped, m.Dropped)
	}
	text := missingText(backup.Missing)
	if !strings.HasSuffix(text, ": server 172.16.0.2:80 of 10.20.0.1:80/tcp, service fwmark 3") {
		t.Error(text)
	}
}

func TestRoleChanges(t *testing.T) {
	eth1 := synchronize.Config{Role: synchronize.RoleMaster, Interface: "eth1"}
	eth2 := synchronize.Config{Role: synchronize.RoleMaster, Interface: "eth2"}
	backup := synchronize.Config{Role: synchronize.RoleBackup, Interface: "eth1"}
	for _, c := range []struct {
		was, next []synchronize.Config
		want      string
	}{
		{nil, nil, ""},
		{nil, []synchronize.Config{eth1}, "start synchronization as master on eth1"},
		{[]synchronize.Config{eth1}, []synchronize.Config{eth2, backup}, "restart synchronization as master on eth2; start synchronization as backup on eth1"},
		{[]synchronize.Config{eth1, backup}, []synchronize.Config{eth1}, "stop synchronization as backup on eth1"},
	} {
		if got := strings.Join(roleChanges(c.was, c.next), "; "); got != c.want {
			t.Errorf("%v to %v: %s", c.was, c.next, got)
		}
	}
}
