// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"strings"
	"testing"

	"imbang/internal/lab/study"
)

// publishedKinds are the findings about a built-in study without any log.
func publishedKinds(t *testing.T, name string) map[string]string {
	t.Helper()
	s, err := study.Find(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	rep := New(nil, s)
	var b bytes.Buffer
	if err := rep.Text(&b); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range rep.Findings {
		out[f.Kind] = f.Text
		if !strings.Contains(b.String(), f.Text) {
			t.Errorf("not printed: %s", f.Text)
		}
	}
	return out
}

// What the publications' text, tables and logs say against each other is found
// from the figures that the studies record.
func TestPublishedContradictions(t *testing.T) {
	for _, c := range []struct{ study, kind, want string }{
		{"single-vs-cluster", "published-text", "Published text and tables disagree: response time of LVS against single: the text gives -43.65 %, " +
			"the means of the table -30.4 % (43.65 % is the difference as a share of LVS, not of single)."},
		{"single-vs-cluster", "published-reciprocal", "In all 6 published cells the time per request is 1 / (requests per second)"},
		{"rr-vs-lc", "published-text", "throughput of lc at 5000: the paper's log gives 971.1 KB/s, the table 1044.8 KB/s"},
		{"rr-vs-lc", "published-replies", "/wordpress: 3xx replies only"},
		{"nginx-upstreams", "published-replies", "POST /api/auth/login: 100 of 100 replies are non-2xx, so an error page or a redirect was measured; 36 of 100 are counted as failed. " +
			"GET /api/me: 100 of 100 replies are non-2xx, so an error page or a redirect was measured; 40 of 100 are counted as failed."},
	} {
		if got := publishedKinds(t, c.study)[c.kind]; !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: got %q\nwant %q", c.study, c.kind, got, c.want)
		}
	}
	if got := publishedKinds(t, "thesis"); len(got) != 0 {
		t.Errorf("the thesis, without its logs: %v", got)
	}
}

// Figures that agree are no finding.
func TestPublishedAgreement(t *testing.T) {
	s, err := study.Find("single-vs-cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := *s.Published
	p.Statements = p.Statements[1:] // the table's own gains
	if got := textAgainstTables(&p); got != "" {
		t.Error(got)
	}
	p.Tables = append([]study.Table(nil), p.Tables...)
	p.Tables[1].Values = map[float64]map[string]float64{1000: {"single": 340, "LVS": 117.2}} // two at a time
	if got := reciprocal(&p); got != "" {
		t.Error(got)
	}
}
