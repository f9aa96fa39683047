// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"math"
	"testing"
	"time"
)

// Numbers as read_unsigned(), read_int() and read_timer() of keepalived 2.2.7 read them.
func TestNumeral(t *testing.T) {
	unsigned := numeral{low: 1, high: 255}
	lenient := numeral{low: 1, high: 255, lenient: true}
	signed := numeral{low: -254, high: 254}
	times := timer(time.Microsecond, math.MaxUint32*time.Microsecond)
	for _, one := range []struct {
		form      numeral
		word      string
		want      int64
		exact, ok bool
	}{
		{unsigned, "1", 1, true, true},
		{unsigned, " +255", 255, true, true},
		{unsigned, "256", 256, true, false},
		{unsigned, "0", 0, true, false},
		{unsigned, "-1", -1, true, false},
		{unsigned, "7x", 0, false, false},
		{unsigned, "1.5", 0, false, false},
		{unsigned, "99999999999999999999", math.MaxInt64, false, false},
		{unsigned, "", 0, true, false},
		{signed, "+", 0, false, false},
		{signed, "-", 0, false, false},
		{numeral{low: 0, high: 9, lenient: true}, " +", 0, false, true},
		{numeral{low: 0, high: 9, lenient: true}, "-", 0, false, false},
		{timer(0, 0), "+", 0, false, true},
		{timer(0, 0), ".", 0, false, true},
		{numeral{low: 0, high: 9}, "", 0, true, true}, // strtoul() of keepalived
		{lenient, "7x", 7, false, true},
		{lenient, "1.5", 1, false, true},
		{lenient, "x", 0, false, false},
		{lenient, "-7x", -7, false, false},
		{signed, "-254", -254, true, true},
		{signed, "-255", -255, true, false},
		{times, "3", 3e6, true, true},
		{times, "0.25", 250e3, true, true},
		{times, ".5", 500e3, true, true},
		{times, "2.", 2e6, true, true},
		{times, "0.0000015", 2, false, true},
		{times, "4294.967295", math.MaxUint32, true, true},
		{times, "4294.967296", math.MaxUint32 + 1, true, false},
		{times, "0", 0, true, false},
		{times, "5s", 5, false, true}, // the zeroes of the microseconds are behind the s
		{times, "-1", -1e6, true, false},
		{timer(0, 0), "-0", 0, true, false},
		{timer(0, 0), "18446744073709551616", math.MaxInt64, false, false},
		{timer(0, 0), "NaN", 0, false, true},
		{timer(0, 0), "1e3", 1, false, true},
	} {
		v, exact, ok := one.form.read(one.word)
		if v != one.want || exact != one.exact || ok != one.ok {
			t.Errorf("%+v of %q: %d, exact %t, ok %t; want %d, %t, %t", one.form, one.word, v, exact, ok, one.want, one.exact, one.ok)
		}
	}
	for form, want := range map[numeral]string{
		unsigned:    "1 to 255",
		times:       "0.000001 to 4294.967295",
		timer(0, 0): "0 or more",
	} {
		if got := form.bounds(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
