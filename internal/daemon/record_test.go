// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// A record of an earlier program has shares of weights in whole percents.
func TestRecordOfWholePercents(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "record-percents.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, checked)
	d.dir = t.TempDir()
	if err := os.WriteFile(d.recordFile(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := d.recall()
	if r.Director == "" || len(r.Applied.Services) != 1 || r.Applied.Services[0].Servers[1].Health != 40*model.Percent {
		t.Fatalf("%+v", r)
	}
	d.core = core.New(d.core.Config, operator.Book{}, r.core(), time.Now())
	for i, want := range []check.State{{Verdict: check.Up}, {Verdict: check.Up, Withheld: 40 * model.Percent}} {
		if got := d.core.Memory().Checks[checkIDs(d)[i]]; got.Verdict != want.Verdict || got.Withheld != want.Withheld || got.Runs != 7 {
			t.Errorf("server %d: %+v", i, got)
		}
	}
	if is := d.core.Wanted().Services[0].Servers[1]; is.Health != 40*model.Percent {
		t.Errorf("%+v", is)
	}
}

// A finer share stays over a restart.
func TestRecordKeepsShares(t *testing.T) {
	state := check.State{Verdict: check.Up, Withheld: model.Leaves(1, 253), Last: check.Result{OK: true, Withheld: model.Leaves(1, 253), HasShare: true}}
	text, err := json.Marshal(record{Memory: memory{{Check: "web", State: state}}})
	if err != nil {
		t.Fatal(err)
	}
	var back record
	if err := json.Unmarshal(text, &back); err != nil || back.Memory[0].State != state {
		t.Errorf("%+v, %v", back, err)
	}
	// An earlier program, which has whole percents, does not refuse the record for it.
	var earlier struct {
		Memory []struct {
			Check string
			State struct {
				Runs     uint64
				Withheld uint8
			}
		}
	}
	if err := json.Unmarshal(text, &earlier); err != nil || earlier.Memory[0].Check != "web" || earlier.Memory[0].State.Withheld != 99 {
		t.Errorf("%+v, %v", earlier, err)
	}
}
