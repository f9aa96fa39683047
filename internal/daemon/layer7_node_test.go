// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
)

// At the deadline of a node's drain, connections are ended as soon as HAProxy can be told so: it may not
// run at that moment.
func TestEndNode(t *testing.T) {
	dir := t.TempDir()
	log, err := events.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	now := time.Now()
	d := &Daemon{Options: Options{State: dir, Log: slog.New(slog.DiscardHandler)}, events: log, alarms: map[string]api.Alarm{}}
	d.layer7 = layer7{dir: dir, order: nodeOrder{Drain: &operator.Drain{Deadline: now.Add(time.Minute)}}}
	d.endNode(now)
	if d.layer7.end.outcome != nil {
		t.Error("ended before the deadline")
	}
	until := func(is func() bool) {
		t.Helper()
		for range 6000 {
			if d.endNode(now.Add(2 * time.Minute)); is() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("not in time")
	}
	until(func() bool { return d.layer7.end.problem != "" })
	if d.layer7.order.Ended {
		t.Error("HAProxy does not run, and its connections are taken for ended")
	}
	worker := exec.Command("sleep", "60")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = worker.Wait(); close(ended) }()
	t.Cleanup(func() { _ = worker.Process.Kill(); <-ended })
	l, err := net.Listen("unix", supervise.MasterSocket(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 100))
			fmt.Fprintf(c, "#<PID> <type> <reloads> <uptime> <version>\n1 master 1 [failed: 0] 0d00h01m05s 2.6.12\n# workers\n# old workers\n%d worker 1 0d00h01m05s 2.6.12\n# programs\n\n", worker.Process.Pid)
			c.Close()
		}
	}()
	until(func() bool { return d.layer7.order.Ended })
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the old worker goes on")
	}
	d.layer7.order = nodeOrder{}
	if err := d.recallNode(); err != nil || !d.layer7.order.Ended {
		t.Errorf("after a restart: %+v, %v", d.layer7.order, err)
	}
	d.endNode(now.Add(3 * time.Minute))
	if d.layer7.end.outcome != nil {
		t.Error("ended again")
	}
}
