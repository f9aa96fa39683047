// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tables of costs are those of the stored result, the cheapest peer first.
func TestCostBlocks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"flood.json": `{"costs":[
{"competitor":"plain","scheduler":"rr","servers":3,"traffic":"one","own_ns":{"n":2,"median":200}},
{"competitor":"ipvs","scheduler":"rr","servers":3,"traffic":"one","own_ns":{"n":2,"median":300}},
{"competitor":"tc","scheduler":"rr","servers":3,"traffic":"one","over":{"plain":{"n":2,"median":0.5,"min":0.4,"max":0.6},"ipvs":{"n":2,"median":0.25,"min":0.2,"max":0.3}}},
{"competitor":"tc","scheduler":"rr","servers":3,"traffic":"many","over":{"plain":{"n":2,"median":1},"ipvs":{"n":2,"median":2}}},
{"competitor":"tc","scheduler":"rr","servers":3,"traffic":"new","over":{"plain":{"n":2,"median":3},"ipvs":{"n":2,"median":4}}},
{"competitor":"tc","scheduler":"sh","servers":3,"traffic":"one","over":{"plain":{"n":2,"median":9}}}]}`,
		"stages.json": `{"costs":[
{"path":"tc","traffic":"one","stage":"find","ns":{"n":2,"median":40.4},"map_lookups":2},
{"path":"tc","traffic":"many","stage":"find","ns":{"n":2,"median":50},"map_lookups":2},
{"path":"tc","traffic":"new","stage":"find","ns":{"n":2,"median":60},"map_lookups":2.26,"map_changes":1},
{"path":"tc","traffic":"one","stage":"open","ns":{"n":2,"median":0.1}},
{"path":"tc","traffic":"many","stage":"open","ns":{"n":2,"median":0}},
{"path":"tc","traffic":"new","stage":"open","ns":{"n":2,"median":7},"map_changes":2}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := Open(dir)
	for query, want := range map[string]string{
		"file=flood.json show=ratios of=tc": `| cost of a packet | one flow | many flows | new connections |
| --- | --- | --- | --- |
| ` + "`tc` to `plain`" + ` | 0.50 (0.40 to 0.60) | 1.00 (0.00 to 0.00) | 3.00 (0.00 to 0.00) |
| ` + "`tc` to `ipvs`" + ` | 0.25 (0.20 to 0.30) | 2.00 (0.00 to 0.00) | 4.00 (0.00 to 0.00) |
`,
		"file=stages.json show=stages path=tc": `| stage | one flow | many flows | new connections |
| --- | --- | --- | --- |
| find | 40 (2) | 50 (2) | 60 (2.3 + 1) |
| open | | | 7 (0 + 2) |
`,
	} {
		page, problems := Fill("<!-- begin "+query+" -->\nold\n<!-- end -->\n", s)
		if len(problems) > 0 || page != "<!-- begin "+query+" -->\n"+want+"<!-- end -->\n" {
			t.Errorf("%s: %v\n%s", query, problems, page)
		}
	}
	for query, want := range map[string]string{
		"file=none.json show=ratios of=tc":           "no such file",
		"file=flood.json show=ratios of=xdp":         "xdp is compared with none",
		"file=stages.json show=stages path=xdp":      "no such path",
		"file=flood.json show=ratios of=tc by=heart": "by: not known here",
		"bench=flood show=ratios of=tc":              "no run of flood",
	} {
		page := "<!-- begin " + query + " -->\n<!-- end -->\n"
		if got, problems := Fill(page, s); len(problems) == 0 || !strings.Contains(problems[0].Text, want) || got != page {
			t.Errorf("%s: %v\n%s", query, problems, got)
		}
	}
}
