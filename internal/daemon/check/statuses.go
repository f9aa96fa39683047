// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strconv"
	"strings"
)

// statuses are ranges of HTTP statuses.
type statuses [][2]int

func (s statuses) has(code int) bool {
	for _, r := range s {
		if r[0] <= code && code <= r[1] {
			return true
		}
	}
	return false
}

// parseStatuses reads "200", "200-299" and lists of them with commas.
func parseStatuses(text string) (s statuses, err error) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || a < 100 || b > 599 || a > b {
			return nil, fmt.Errorf("%q: want statuses from 100 to 599, such as 200, 200-299 or 200,301", text)
		}
		s = append(s, [2]int{a, b})
	}
	return s, nil
}
