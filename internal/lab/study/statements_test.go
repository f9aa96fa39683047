// SPDX-License-Identifier: Apache-2.0

package study

import (
	"strings"
	"testing"
)

// A statement that no table can contradict is refused with what to write.
func TestStatementsAreAboutTables(t *testing.T) {
	s, err := Find("single-vs-cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Published.Statements); n != 4 {
		t.Fatalf("%d statements, want 4", n)
	}
	for old, c := range map[string]struct{ new, want string }{
		"metric: response_time, family: ipv4, of: LVS, over: single, percent: -43.65": {
			"metric: loss, of: LVS, over: single, percent: -43.65", `"loss" has no published table`},
		"of: LVS, over: single, percent: -43.65}": {"of: LVS, over: double, percent: -43.65}", `"double" is no column`},
		"over: single, percent: -30.4}":           {"level: 7, value: 3}", "no figure of"},
		"over: single, percent: 42.1}":            {"over: single, percent: 42.1, value: 3}", "want either of, over and percent"},
		"where: the text, ":                       {"", "missing: want the place"},
	} {
		text := strings.Replace(s.Text, old, c.new, 1)
		if text == s.Text {
			t.Fatalf("%q is not in the study", old)
		}
		if _, err := Parse("x", []byte(text), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
	}
}
