// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/sync/keep"
	"imbang/internal/daemon/sync/own"
	"imbang/internal/daemon/sync/replicate"
)

var (
	theirs = netip.MustParseAddrPort("10.0.0.2:8790")
	third  = netip.MustParseAddrPort("10.0.0.3:8790")
)

func replicationConfig(role replicate.Role) *replicate.Config {
	return &replicate.Config{Role: role, Listen: netip.MustParseAddrPort("10.0.0.1:8790"), To: []netip.AddrPort{theirs, third}, Group: 3}
}

// What a role reports is alarms of the daemon, one for each name, while it lasts.
func TestReplicationAlarms(t *testing.T) { synctest.Test(t, replicationAlarms) } // no time passes

func replicationAlarms(t *testing.T) {
	log, err := events.Open(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &Daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}, events: log, alarms: map[string]api.Alarm{}}
	for range 2 {
		d.noteReplicationAlarms([]replicate.Alarm{{Name: replicate.NoReceiver, Text: "a"}, {Name: replicate.NoReceiver, Text: "b"}, {Name: replicate.TwoMasters, Text: "c"}})
	}
	d.noteReplicationAlarms([]replicate.Alarm{{Name: replicate.TwoMasters, Text: "c"}})
	if a := d.alarms["replication-two-masters"]; len(d.alarms) != 1 || a.Text != "c" {
		t.Errorf("%+v", d.alarms)
	}
	d.noteReplicationAlarms(nil)
	var got []string
	for _, e := range log.Last(10) {
		got = append(got, string(e.Kind)+" "+e.Text)
	}
	want := []string{
		"alarm replication-two-masters: c", "alarm replication-no-receiver: a; b", "alarm-ended replication-no-receiver: after 0s", "alarm-ended replication-two-masters: after 0s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReplicationStatus(t *testing.T) {
	master := replicate.State{
		Role: replicate.Master, Session: 0xab, Lost: 2, Counts: own.Counts{Datagrams: 9, Entries: 100, Deletions: 50, Bulks: 1, Repeated: 3},
		Receivers: []own.ReceiverStatus{{Addr: theirs, Behind: 4, Synced: true}, {Addr: third, Behind: 12, Lacking: 3, Missing: []string{"x"}}},
	}
	master.Counts.Refused[own.ReasonForged] = 7
	since := time.Now()
	s := replication(replicationConfig(replicate.Master), keep.Progress{State: keep.Running, Since: since}, &master)
	refused := uint64(0)
	for _, one := range s.Refused {
		if one.Reason == "forged" {
			refused = one.Count
		}
	}
	if s.Role != "master" || s.State != "running" || s.Session != "00000000000000ab" || s.Synced || s.Behind != 12 || s.Lacking != 3 || s.Lost != 2 || s.Entries != 100 || s.Deletions != 50 || s.Bulks != 1 || s.Repeated != 3 || refused != 7 || s.Group != 3 || s.Since != since {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([]api.ReplicationReceiver{{Address: "10.0.0.2:8790", Behind: 4, Synced: true}, {Address: "10.0.0.3:8790", Behind: 12, Lacking: 3, Missing: []string{"x"}}}, s.Receivers); diff != "" {
		t.Error(diff)
	}
	backup := replicate.State{Role: replicate.Backup, Master: own.ReceiverState{Session: 1, Sender: theirs, Following: true, Synced: true, Missing: 5}, Waiting: 6, Missing: []replicate.Missing{{Service: "y", Entries: 6}}, Lacking: 7, Refused: 8, Swept: 9, Locked: 10, Differences: []string{"x"}}
	s = replication(replicationConfig(replicate.Backup), keep.Progress{State: keep.Running}, &backup)
	if s.Master != "10.0.0.2:8790" || !s.Synced || s.Behind != 5 || s.Waiting != 6 || s.Lacking != 7 || s.Swept != 9 || s.Locked != 10 || s.NotEntered != 8 || len(s.Differences) != 1 || len(s.Missing) != 1 || s.Missing[0] != (api.SyncMissing{Service: "y", Entries: 6}) {
		t.Errorf("%+v", s)
	}
	backup.Master.Following = false // a table that was synced is old now
	s = replication(replicationConfig(replicate.Backup), keep.Progress{State: keep.Failed, Err: errors.New("gone")}, &backup)
	if s.Master != "" || s.Session != "" || s.Synced || s.Error != "gone" {
		t.Errorf("%+v", s)
	}
}

func TestReplicationChanges(t *testing.T) {
	one, same, other := replicationConfig(replicate.Master), replicationConfig(replicate.Master), replicationConfig(replicate.Backup)
	for _, c := range []struct {
		was, next *replicate.Config
		want      string
	}{
		{nil, nil, ""},
		{one, same, ""},
		{nil, one, "start replication as master, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3"},
		{one, other, "restart replication as backup, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3"},
		{one, nil, "stop replication as master, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3"},
	} {
		if got := strings.Join(replicationChanges(c.was, c.next, false, nil), "; "); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	same.KeyFile = "/k"
	for want, got := range map[string][]string{
		"restart replication as master, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3: /k has another key":                                             replicationChanges(same, same, true, nil),
		"keep replication as master, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3, with the key that it read when it started: key file: no such file": replicationChanges(same, same, false, errors.New("replication: key file: no such file")),
		"stop replication as master, 10.0.0.1:8790 to 10.0.0.2:8790, 10.0.0.3:8790, group 3":                                                                    replicationChanges(same, nil, true, nil),
	} {
		if strings.Join(got, "; ") != want {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

// looping is a daemon that answers calls, and does nothing else.
func looping(t *testing.T) *Daemon {
	d := &Daemon{calls: make(chan func()), ended: make(chan struct{})}
	t.Cleanup(func() { close(d.ended) })
	go func() {
		for {
			select {
			case call := <-d.calls:
				call()
			case <-d.ended:
				return
			}
		}
	}()
	return d
}

// A barrier is refused where nothing replicates, and with a time that is none.
func TestBarrierRefused(t *testing.T) {
	d := looping(t)
	for timeout, want := range map[float64]string{0: "no replication is configured", 1: "no replication is configured", -1: "timeout of -1 s", 601: "at most 600 s", math.NaN(): "timeout of NaN s"} {
		if _, err := d.Barrier(t.Context(), api.BarrierRequest{Timeout: timeout}); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v s: %v", timeout, err)
		}
	}
}

// It waits for a role that does not run, as just after a reload.
func TestBarrierAwaitsTheRole(t *testing.T) {
	d := looping(t)
	d.own = keep.Replication{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	c := replicationConfig(replicate.Master)
	c.KeyFile = "/nonexistent"
	d.own.Set(c, time.Now())
	defer d.own.Close()
	began := time.Now()
	_, err := d.Barrier(t.Context(), api.BarrierRequest{Timeout: 0.3})
	if took := time.Since(began); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), "no replication runs") || took < 300*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
}
