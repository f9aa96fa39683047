// SPDX-License-Identifier: Apache-2.0

package study

import "time"

type repeatsDoc struct {
	Least  int     `yaml:"least"`
	Most   int     `yaml:"most"`
	Until  float64 `yaml:"until_percent"`
	Budget string  `yaml:"budget"`
}

const mostRepeats = 1000

func (c *checker) repeats(d *repeatsDoc, s *Study) {
	c.between("repeats.least", d.Least, 1, mostRepeats)
	s.Repeats = Repeats{Least: d.Least, Most: d.Least}
	if c.has("repeats.budget") {
		s.Repeats.Budget = c.duration("repeats.budget", d.Budget)
	}
	if c.has("repeats.most") != c.has("repeats.until_percent") {
		c.refuse("repeats", "give most and until_percent together: repeats are added until intervals are that narrow")
	}
	if !c.has("repeats.most") {
		return
	}
	s.Repeats.Most, s.Repeats.Until = d.Most, d.Until/100
	c.between("repeats.most", d.Most, d.Least, mostRepeats)
	if !(d.Until > 0 && d.Until <= 100) {
		c.refuse("repeats.until_percent", "%g is out of range: want above 0 and at most 100", d.Until)
	}
}

type quickDoc struct {
	Duration string `yaml:"duration"`
	Repeats  int    `yaml:"repeats"`
}

func (c *checker) quick(d *quickDoc, s *Study) {
	s.Quick = Quick{Duration: time.Second, Repeats: 1}
	if c.has("quick.duration") {
		s.Quick.Duration = c.duration("quick.duration", d.Duration)
	}
	if c.has("quick.repeats") {
		c.between("quick.repeats", d.Repeats, 1, mostRepeats)
		s.Quick.Repeats = d.Repeats
	}
}
