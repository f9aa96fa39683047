// SPDX-License-Identifier: Apache-2.0

package record

import "testing"

func TestConditionsInWords(t *testing.T) {
	for _, c := range []struct {
		condition Condition
		want      string
	}{
		{Condition{Rate: 3900, Fraction: 0.6, Arrivals: "constant"}, "60 % of capacity (3900/s)"},
		{Condition{Fraction: 0.3, Arrivals: "poisson"}, "30 % of capacity, poisson"},
		{Condition{Rate: 2000, Tool: "httperf", Connections: 20000}, "2000/s, httperf"},
		{Condition{Users: 100, Requests: 200, Tool: "ab", KeepAlive: true}, "200 requests of 100 users, ab, keep-alive"},
	} {
		if got := c.condition.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestFractionsOfOneLoadAreOneTable(t *testing.T) {
	a := Condition{Rate: 300, Fraction: 0.3, Published: 2000, Tool: "built-in"}
	b := Condition{Rate: 900, Fraction: 0.9, Published: 14000, Tool: "built-in"}
	if a.Group() != b.Group() {
		t.Errorf("%+v and %+v are of two tables", a.Group(), b.Group())
	}
	if a.Level() != 300 || a.PublishedLevel() != 2000 {
		t.Errorf("level %g, published %g; want 300 and 2000", a.Level(), a.PublishedLevel())
	}
	if c := (Condition{Rate: 300}); c.PublishedLevel() != 300 {
		t.Errorf("published level %g, want that of the condition, 300", c.PublishedLevel())
	}
}
