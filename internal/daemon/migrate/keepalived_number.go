// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// numeral is the form of a number of keepalived.conf: read_int(), read_unsigned(),
// read_decimal_unsigned() and read_timer() of its lib/parser.c.
type numeral struct {
	low, high int64 // in the smallest unit: 10^-places
	places    int   // decimal places that are read
	lenient   bool  // the digits before other characters count (ignore_error of keepalived)
}

// timer is the form of a time: decimal seconds, read as microseconds, which lose other
// characters at the end. A high of 0 is no bound.
func timer(low, high time.Duration) numeral {
	n := numeral{low: low.Microseconds(), high: high.Microseconds(), places: 6, lenient: true}
	if high == 0 {
		n.high = math.MaxInt64
	}
	return n
}

// read is the value that keepalived takes from a word, in the smallest unit. Ok is false if
// it refuses the word; exact is false if it takes another number than the word says.
func (n numeral) read(word string) (v int64, exact, ok bool) {
	word = strings.TrimLeft(word, blanks)
	whole, fraction, _ := strings.Cut(word, ".")
	if n.places == 0 {
		whole, fraction = word, ""
	}
	exact = len(fraction) <= n.places
	round := !exact && fraction[n.places] >= '5'
	fraction = fraction[:min(len(fraction), n.places)]
	text := whole + fraction + strings.Repeat("0", n.places-len(fraction))
	end := 0
	if len(text) > 1 && (text[0] == '+' || text[0] == '-') { // a sign alone is no number
		end++
	}
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end < len(text) && !n.lenient {
		return 0, false, false
	}
	exact = exact && end == len(text) && (word == "" || strings.Trim(word, "+-.") != "")
	v, _ = strconv.ParseInt(text[:end], 10, 64) // the nearest number, if it is out of range
	if _, err := strconv.ParseUint(strings.TrimLeft(text[:end], "+-"), 10, 64); errors.Is(err, strconv.ErrRange) {
		return v, false, false
	}
	if round && v < math.MaxInt64 {
		v++
	}
	return v, exact, v >= n.low && v <= n.high && (n.low < 0 || !strings.HasPrefix(text, "-"))
}

// text is a value as the file has it.
func (n numeral) text(v int64) string {
	if n.places == 0 {
		return strconv.FormatInt(v, 10)
	}
	digits := fmt.Sprintf("%0*d", n.places+1, v)
	point := len(digits) - n.places
	return strings.TrimRight(strings.TrimRight(digits[:point]+"."+digits[point:], "0"), ".")
}

// bounds are the values that keepalived takes, in words.
func (n numeral) bounds() string {
	if n.high == math.MaxInt64 {
		return n.text(n.low) + " or more"
	}
	return n.text(n.low) + " to " + n.text(n.high)
}

// numeral reads the i-th word of a statement as keepalived does, in the smallest unit of
// its form. A word that keepalived refuses is listed with what it has instead.
func (k *keepalived) numeral(s *statement, i int, n numeral, instead string) (v int64, ok bool) {
	if i >= len(s.words) {
		k.lose(s.place, s.text(), "has no number, and keepalived ends there: %s", instead)
		return 0, false
	}
	v, exact, ok := n.read(s.word(i))
	switch {
	case !ok:
		k.lose(s.place, s.text(), "keepalived accepts only %s: %s, as in keepalived", n.bounds(), instead)
		return 0, false
	case !exact:
		k.lose(s.place, s.text(), "not a number: keepalived reads %s", n.text(v))
	}
	return v, true
}
