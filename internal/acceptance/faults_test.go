// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// In the middle half of its only cell, a server is dead.
const dying = `name: dying
cluster:
  client_namespaces: 1
  client_addresses: 10
  servers:
    - {kind: model, count: 3, page: 100 B, law: constant, service: 1 ms, concurrency: 16}
load:
  rates: [150]
  duration: 12 s
  timeout: 5 s
  faults:
    - {at: 2 s, server: s2, do: kill}
    - {at: 8 s, server: s2, do: start}
competitors:
  - {engine: imbang, schedulers: [rr]}
repeats: {least: 1}
`

// A whole run with a server that dies and comes back: the timeline has the
// gap, and what was lost in it was refused by the server that was not there.
func TestLabRunWithAServerThatDies(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	path, out := filepath.Join(dir, "dying.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte(dying), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, nil, "", "lab", "run", path, "--out", out)
	stored, err := record.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Samples) != 1 || stored.Samples[0].Error != "" {
		t.Fatalf("%+v, want one sample", stored.Samples)
	}
	s := stored.Samples[0]
	if s.CPU.ServersNS != nil {
		t.Errorf("CPU of servers %v, one of which took its own along", s.CPU.ServersNS)
	}
	r := s.Load
	if r.Timeline == nil {
		t.Fatal("no timeline")
	}
	for _, server := range []string{"s1", "s2", "s3"} {
		before, dead, after := between(r.Timeline, server, 0, 1.9), between(r.Timeline, server, 4, 7.8), between(r.Timeline, server, 8, 60)
		if before == 0 || after == 0 || (dead == 0) != (server == "s2") {
			t.Errorf("%s answered %d before, %d and %d after s2 died: %v", server, before, dead, after, r.Timeline.Replies[server])
		}
	}
	// rr goes on giving the dead one its third of 900; a busy machine is late.
	if n := r.Loss.Refused; n < 120 || n > 500 || n < r.Loss.Total()*9/10 {
		t.Errorf("lost %+v, want about 300 refused and little else", r.Loss)
	}
}

// between counts a server's replies in the slots that lie within a time, in
// seconds.
func between(t *load.Timeline, server string, from, to float64) (n int) {
	for i, replies := range t.Replies[server] {
		if at := float64(i) * t.SlotSeconds; at >= from && at+t.SlotSeconds <= to {
			n += replies
		}
	}
	return n
}
