// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// field is a line of a tool's results: its label, the form of the whole line
// and what becomes of the groups. A line that begins with the label and has
// another form is a mistake, not something to step over.
type field struct {
	label    string
	form     *regexp.Regexp
	required bool
	take     func(g groups)
}

// num is a number as C prints it; a division by zero gives nan or inf.
const num = `(-?nan|-?inf|\d+(?:\.\d+)?)`

// form compiles a line's form: # stands for a number, @ for a count, blanks
// for any run of blanks.
func form(s string) *regexp.Regexp {
	s = numbers.Replace(regexp.QuoteMeta(s))
	return pattern(`^` + strings.ReplaceAll(s, " ", `\s+`) + `$`)
}

var numbers = strings.NewReplacer("#", num, "@", `(\d+)`)

// patterns are the expressions that were compiled, since each run asks for the
// same ones again; and no sooner than that, since all of imbang's commands
// would start later for it.
var patterns sync.Map

func pattern(s string) *regexp.Regexp {
	if re, ok := patterns.Load(s); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile(s)
	patterns.Store(s, re)
	return re
}

// matching reports whether a line has a form.
func matching(form string) func(line string) bool {
	return func(line string) bool { return pattern(form).MatchString(line) }
}

// groups are the parts of a line that matter.
type groups []string

// float is a group as a number; nil if the tool could not tell.
func (g groups) float(i int) *float64 {
	v, err := strconv.ParseFloat(g[i], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// value is a number for which 0 is as good as nothing.
func (g groups) value(i int) float64 {
	if v := g.float(i); v != nil {
		return *v
	}
	return 0
}

// count is a group as a count.
func (g groups) count(i int) *int64 {
	v, err := strconv.ParseInt(g[i], 10, 64)
	if err != nil {
		return nil
	}
	return &v
}

// counted is a count for which 0 is as good as nothing.
func (g groups) counted(i int) int64 {
	if v := g.count(i); v != nil {
		return *v
	}
	return 0
}

// read takes the fields of a run out of its lines. Lines without a known label
// are what the tool or its user printed besides.
func (b *block) read(fields []field) error {
	seen := make([]bool, len(fields))
	for _, l := range b.lines {
		i, g, near := match(fields, l.text)
		switch {
		case i < 0 && near != "":
			return fmt.Errorf("%d: %q is not how %s writes %q: was the file edited?", l.number, shorten(l.text), b.format.tool, near)
		case i < 0:
			continue
		case seen[i]:
			return fmt.Errorf("%d: %q for the second time in one run: give each run as the tool printed it", l.number, fields[i].label)
		case !inRange(g):
			return fmt.Errorf("%d: %q has a number that is out of range: was the file edited?", l.number, shorten(l.text))
		}
		seen[i] = true
		fields[i].take(g)
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			return b.missing(f.label)
		}
	}
	return nil
}

// missing says that a line is not there.
func (b *block) missing(label string) error {
	last := b.lines[len(b.lines)-1].number
	return fmt.Errorf("%d: the line %q is missing before here: the run was stopped or the file is cut; run it again", last, label)
}

// match finds the field of a line. Several fields may share a label; then near
// is the label of a line that has the form of none.
func match(fields []field, text string) (index int, g groups, near string) {
	for i, f := range fields {
		if !strings.HasPrefix(text, f.label) {
			continue
		}
		if m := f.form.FindStringSubmatch(text); m != nil {
			return i, m, ""
		}
		if near == "" {
			near = f.label
		}
	}
	return -1, nil, near
}

// inRange refuses numbers that no run has, so that sums cannot overflow.
func inRange(g groups) bool {
	for _, s := range g[1:] {
		if v, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) && v > 1e15 {
			return false
		} else if err != nil && pattern(numeric).MatchString(s) {
			return false
		}
	}
	return true
}

const numeric = `^\d+(\.\d+)?$`

// set stores a time that the tool could tell.
func (r *Result) set(key string, v *float64) {
	if v == nil {
		return
	}
	if r.TimesMS == nil {
		r.TimesMS = map[string]float64{}
	}
	r.TimesMS[key] = *v
}

// checkRate notes a rate that is not the count over the duration, as far as
// the printed digits tell.
func (r *Result) checkRate(what string, count int64, printed *float64, secondsDigit, rateDigit float64) {
	if printed == nil || r.Seconds <= secondsDigit {
		return
	}
	least := float64(count)/(r.Seconds+secondsDigit/2) - rateDigit
	most := float64(count)/(r.Seconds-secondsDigit/2) + rateDigit
	if *printed < least || *printed > most {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%d %s in %g s are %.1f/s, not %g/s",
			count, what, r.Seconds, float64(count)/r.Seconds, *printed))
	}
}
