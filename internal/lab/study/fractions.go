// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
)

// maxFraction is the greatest load that a study can ask for, as a fraction of
// the measured capacity: what lies beyond is measured better by its rate.
const maxFraction = 2

// levels checks the rates of an open loop, or the fractions that stand for
// them until the capacity is measured.
func (c *checker) levels(l *Load) {
	if c.has("load.fractions") {
		c.distinct("load.fractions", l.Fractions, maxFraction, "fractions of the measured capacity such as [0.3, 0.6, 0.9]", "a fraction of the measured capacity")
		if c.has("load.published_rates") {
			c.distinct("load.published_rates", l.PublishedRates, maxRate, "the published rates that belong to the fractions, in their order", "connections per second")
			if len(l.PublishedRates) != len(l.Fractions) {
				c.refuse("load.published_rates", "%d for %d fractions: give one for each", len(l.PublishedRates), len(l.Fractions))
			}
		}
		return
	}
	for _, key := range []string{"published_rates", "reference"} {
		c.absent("load", key, "it belongs to fractions")
	}
	c.distinct("load.rates", l.Rates, maxRate, "a list of connections per second such as [2000, 8000]", "connections per second")
}

// distinct refuses an empty list, a number that is not above 0 or is too large,
// and one given twice.
func (c *checker) distinct(path string, list []float64, most float64, want, unit string) {
	if len(list) == 0 {
		c.refuse(path, "missing: want %s", want)
	}
	for i, x := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !(x > 0 && x <= most) {
			c.refuse(at, "%g is out of range: want %s, above 0 and at most %g", x, unit, most)
		}
		if slices.Index(list, x) != i {
			c.refuse(at, "%g is given twice: remove one", x)
		}
	}
}

// reference names the competitor that the capacity is measured with: by
// default the first that balances, or else the first.
func (c *checker) reference(name string, s *Study) {
	known := make([]string, len(s.Competitors))
	for i, p := range s.Competitors {
		known[i] = p.Name
	}
	switch {
	case c.has("load.reference") && !slices.Contains(known, name):
		c.refuse("load.reference", "%q is no competitor of the study: they are %s", name, join(known))
	case c.has("load.reference"):
		s.Load.Reference = name
	}
}
