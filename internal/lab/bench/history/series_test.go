// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		part, date string
		want       int
	}{
		{"path", "2026-11-22T14:17:30Z", 1}, {"path", "2026-11-22T16:57:04Z", 2}, {"path", "2026-11-22T17:14:55Z", 3},
		{"path", "2026-11-22T21:00:57Z", 4}, {"path", "2026-11-22T21:07:36Z", 5}, {"path", "2026-12-01T00:00:00Z", 6},
		{"flood", "2026-11-22T14:27:32Z", 1}, {"flood", "2026-11-22T21:00:57Z", 3}, {"memory", "2026-11-24T00:00:00Z", 1}, {"memory", "2026-12-01T00:00:00Z", 2},
	} {
		if got := seriesAt(c.part, at(c.date)); got != c.want {
			t.Errorf("%s at %s: series %d, want %d", c.part, c.date, got, c.want)
		}
	}
	for i, c := range changes {
		if i > 0 && changes[i-1].part == c.part && c.since.Before(changes[i-1].since) {
			t.Errorf("%s: %s is listed behind a later change", c.part, c.commit)
		}
	}
}

// A run of an older program by an old measure is in the course of the figures, in
// its own series, and is not the latest result.
func TestOldMeasureAgain(t *testing.T) {
	run := func(value string, series int) Run {
		return Run{Environment: Environment{Date: at("2026-12-01T00:00:00Z").Add(time.Duration(series) * time.Hour)}, Parts: []Part{{
			Name: "path", Series: series,
			Result: json.RawMessage(`{"targets":[{"name":"n","at_least":1,"value":{"n":1,"median":` + value + `,"min":1,"max":1}}]}`),
		}}}
	}
	runs := []Run{run("1.25", 0), run("2.25", 5)}
	if latest, ok := Latest(runs, "path"); !ok || !strings.Contains(string(latest.Result), "1.25") {
		t.Errorf("%+v", latest)
	}
	page, err := Page(runs)
	if err != nil || !strings.Contains(page, "\n| 6 | 2026-12-01 |") || !strings.Contains(page, "\n| 5 | 2026-12-01 |") {
		t.Errorf("%v:\n%s", err, page)
	}
}
