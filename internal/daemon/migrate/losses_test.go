// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
)

// A reason that many lines share is listed once, with the first lines that have it and the
// number of the others; one that few lines share is listed at each. Losses has all.
func TestLossesAlike(t *testing.T) {
	var text strings.Builder
	for range 5 {
		text.WriteString("virtual_server 10.0.0.1 80 {\nprotocol TCP\nha_suspend\nsnmp_name a\n}\n")
	}
	r, err := importOne(t, "x", []byte(text.String()), Source{})
	if err != nil {
		t.Fatal(err)
	}
	const suspended = "x:3: ha_suspend: "
	listed := r.Listed()
	all := "# " + strings.Join(listed, "\n# ")
	if n := strings.Count(all, ": ha_suspend: "); n != 1 || !strings.Contains(all, suspended) {
		t.Errorf("%d lines of ha_suspend in\n%s", n, all)
	}
	if want := " (and in 4 lines more: x:8, x:13, x:18, ...)"; !strings.Contains(all, want) {
		t.Errorf("no%s in\n%s", want, all)
	}
	if got := string(r.YAML()); !strings.Contains(got, all) {
		t.Errorf("the configuration has another list than\n%s\n%s", all, got)
	}
	n := 0
	for _, l := range r.Losses {
		if strings.HasPrefix(l.What, "ha_suspend") {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d losses of ha_suspend, want 5", n)
	}

	r, err = importOne(t, "x", []byte(strings.Repeat("virtual_server 10.0.0.1 80 {\nprotocol TCP\nha_suspend\n}\n", 2)), Source{})
	if err != nil {
		t.Fatal(err)
	}
	all = strings.Join(r.Listed(), "\n")
	if !strings.Contains(all, "x:3: ha_suspend: ") || !strings.Contains(all, "x:7: ha_suspend: ") || strings.Contains(all, "more") {
		t.Errorf("two lines are not listed each:\n%s", all)
	}
}
