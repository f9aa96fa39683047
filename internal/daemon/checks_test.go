// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/hooks"
	"imbang/internal/daemon/operator"
)

const checked = `
checks:
  web: {tcp: {}, rise: 3}
services:
  - name: web
    virtual: 10.20.0.1:80
    checks: [web]
    servers:
      - {name: a, address: 172.16.0.1}
      - {name: b, address: 172.16.0.2}
`

// newDaemon is a daemon of a configuration without its loop and its director.
func newDaemon(t *testing.T, text string) *Daemon {
	t.Helper()
	path := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := events.Open("")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		Options: Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, events: log, results: make(chan result, 8),
		alarms: map[string]api.Alarm{}, core: core.New(c, operator.Book{}, core.Memory{}, time.Now()),
	}
	d.hooks = hooks.New(d.hookFailed)
	t.Cleanup(d.hooks.Close)
	return d
}

// After a restart, checks go on from the state that was remembered.
func TestJobsGoOn(t *testing.T) {
	d := newDaemon(t, checked)
	now := time.Now()
	memory, ids := d.core.Memory(), checkIDs(d)
	down := check.State{Verdict: check.Down, Since: now.Add(-time.Hour), Row: 1}
	memory.Checks[ids[1]] = down
	d.core = core.Restart(d.core.Config, operator.Book{}, memory, now)
	jobs := d.jobs()
	if got := jobs[ids[0]].State.Verdict; len(jobs) != 2 || got != check.Up {
		t.Errorf("%d jobs, the first one %s", len(jobs), got)
	}
	if got := jobs[ids[1]].State; got != down {
		t.Errorf("%+v, want %+v", got, down)
	}
}

// Checks of a backend whose servers expect the PROXY protocol send it, but to another port.
func TestJobsSendProxy(t *testing.T) {
	d := newDaemon(t, `
checks:
  same: {tcp: {}}
  other: {tcp: {}, port: 9000}
listeners: [{name: shop, bind: ["127.0.0.1:80"], backend: web}]
backends: [{name: web, send_proxy: v2, checks: [same, other], servers: [{address: "127.0.0.1:8080"}]}]
`)
	sent := map[uint16]int{}
	for _, j := range d.jobs() {
		sent[j.Target.Addr.Port()] = j.Target.Proxy
	}
	if len(sent) != 2 || sent[8080] != 2 || sent[9000] != 0 {
		t.Errorf("versions by ports: %v", sent)
	}
}

func checkIDs(d *Daemon) (ids []core.CheckID) {
	d.core.Each(func(id core.CheckID, _ *config.Check, _ *config.Service, _ *config.Server) { ids = append(ids, id) })
	return ids
}

// texts are the events of a daemon, in short.
func texts(d *Daemon) (list []string) {
	for _, e := range d.events.Last(100) {
		list = append(list, string(e.Kind)+" "+e.Text)
	}
	return list
}

// One alarm says that checks cannot be made, and ends a minute after the last of them.
func TestUnmade(t *testing.T) { synctest.Test(t, unmade) } // no time passes

func unmade(t *testing.T) {
	d := newDaemon(t, checked)
	start := time.Now()
	ids := checkIDs(d)
	lack := check.Result{Detail: "too many open files", Inconclusive: true}
	d.keepUnmade(start)
	for i := range 10 {
		d.take(result{ids[i%2], lack, start.Add(time.Duration(i) * time.Second)})
	}
	if got, want := d.alarms[alarmChecks].Text, "check web of a could not be made: too many open files"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.take(result{ids[0], check.Result{OK: true}, start.Add(20 * time.Second)})
	d.keepUnmade(start.Add(68 * time.Second))
	if len(d.alarms) != 1 {
		t.Errorf("%v, 59 s after the last one", d.alarms)
	}
	d.keepUnmade(start.Add(69 * time.Second))
	want := []string{"alarm checks: check web of a could not be made: too many open files", "alarm-ended checks: after 0s"}
	if got := texts(d); len(d.alarms) != 0 || !slices.Equal(got, want) {
		t.Errorf("%v, %q, want %q", d.alarms, got, want)
	}
}

// The alarm names a check that cannot be made now: not one that was repaired, nor a past reason.
func TestUnmadeNamesBroken(t *testing.T) { synctest.Test(t, unmadeNamesBroken) }

func unmadeNamesBroken(t *testing.T) {
	d := newDaemon(t, checked)
	start := time.Now()
	ids := checkIDs(d)
	for _, one := range []struct {
		second int
		of     int // server
		lack   string
		want   string
	}{
		{0, 0, "mode 0644", "a could not be made: mode 0644"},
		{1, 1, "mode 0644", "a could not be made: mode 0644"},
		{8, 0, "missing", "a could not be made: mode 0644"}, // each text is an event
		{12, 1, "mode 0644", "a could not be made: mode 0644"},
		{13, 0, "missing", "a could not be made: missing"},
		{30, 0, "", "a could not be made: missing"},
		{31, 1, "mode 0644", "b could not be made: mode 0644"},
		{40, 0, "missing", "b could not be made: mode 0644"},
		{90, 0, "missing", "b could not be made: mode 0644"},
		{91, 0, "missing", "a could not be made: missing"}, // b is no longer checked
	} {
		r := check.Result{Detail: one.lack, OK: one.lack == "", Inconclusive: one.lack != ""}
		d.take(result{ids[one.of], r, start.Add(time.Duration(one.second) * time.Second)})
		if got := d.alarms[alarmChecks].Text; got != "check web of "+one.want {
			t.Errorf("after %d s: %q, want %q", one.second, got, one.want)
		}
	}
	if got := len(texts(d)); got != 4 {
		t.Errorf("%d events", got)
	}
}
