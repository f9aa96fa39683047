// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const packaging = "../../../packaging"

// exported are the names of the metrics, as the source has them.
func exported(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range []string{"metrics.go", "proxy.go", "replication.go", "vrrp.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`metric\{"(imbang_[a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) < 20 {
		t.Fatalf("%d metrics", len(names))
	}
	return names
}

// The dashboard and the rules use metrics that there are, and the dashboard is JSON whose
// panels all have a query.
func TestDashboardAndRules(t *testing.T) {
	names := exported(t)
	for _, file := range []string{"grafana/imbang.json", "prometheus/imbang-rules.yml", "prometheus/imbang-rules-test.yml"} {
		text, err := os.ReadFile(filepath.Join(packaging, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bimbang_[a-z_]+`).FindAllString(string(text), -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(packaging, "grafana/imbang.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || slices.ContainsFunc(p.Targets, func(x struct{ Expr string }) bool { return x.Expr == "" })) {
			t.Errorf("panel %q has no query", p.Title)
		}
	}
}

// Prometheus takes the rules, and each fires when it is to; so it takes the queries of the
// dashboard.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt install prometheus")
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(tool, args...)
		cmd.Dir = filepath.Join(packaging, "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	run("check", "rules", "imbang-rules.yml")
	run("test", "rules", "imbang-rules-test.yml")
	text, err := os.ReadFile(filepath.Join(packaging, "grafana/imbang.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(text), -1) {
		rules.WriteString("  - record: x\n    expr: " + strings.ReplaceAll(m[1], "$__rate_interval", "1m") + "\n")
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", "--lint=none", file)
}
