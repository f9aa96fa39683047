// SPDX-License-Identifier: Apache-2.0

//go:build live

package acceptance

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
)

// verdictOf runs a study of testdata and returns its verdict.
func verdictOf(t *testing.T, name string) (v struct {
	Outcome, Sentence string
	Winners           []struct{ Names []string }
}) {
	t.Helper()
	needRoot(t)
	o := lab(t, "run", filepath.Join("testdata", "studies", name+".yaml"), "-o", "json", "--out", filepath.Join(t.TempDir(), "run"))
	if o.status != 0 {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	var rep struct{ Verdict *json.RawMessage }
	if err := json.Unmarshal([]byte(o.stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(*rep.Verdict, &v); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", v.Outcome, v.Sentence)
	return v
}

func TestFourEqualsLive(t *testing.T) {
	if v := verdictOf(t, "equals"); len(v.Winners) > 0 || !slices.Contains([]string{"no difference", "equal", "groups"}, v.Outcome) {
		t.Errorf("%s: %s", v.Outcome, v.Sentence)
	}
}

func TestSlowServerLive(t *testing.T) {
	if v := verdictOf(t, "slow-server"); len(v.Winners) == 0 || v.Winners[0].Names[0] != "wrr" {
		t.Errorf("%s: %s", v.Outcome, v.Sentence)
	}
}
