// SPDX-License-Identifier: Apache-2.0

package study

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// duration reads "5 s" or "500 ms". A bare number is refused: its unit is
// anybody's guess.
func (c *checker) duration(path, text string) time.Duration {
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	switch {
	case text == "":
		c.refuse(path, "missing: want a time such as 5 s")
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s s or %s ms", text, text, text)
	case err != nil:
		c.refuse(path, "%q is not a time: write a number with ms, s or m, such as 5 s", text)
	case d <= 0:
		c.refuse(path, "%s: want a time above 0", text)
	}
	return d
}

var sizeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+) *([A-Za-z]+)$`) })

// size reads "375 B" or "16 KB", with 1024 bytes a KB as httperf counts.
func (c *checker) size(path, text string) int {
	factors := map[string]int{"B": 1, "KB": 1 << 10}
	m := sizeForm().FindStringSubmatch(text)
	switch {
	case text == "":
		c.refuse(path, "missing: want a size such as 375 B")
		return 0
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s B", text, text)
		return 0
	case m == nil || factors[m[2]] == 0:
		c.refuse(path, "%q is not a size: write a whole number with B or KB, such as 375 B", text)
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if n *= factors[m[2]]; err != nil || n < 1 || n > maxPageBytes {
		c.refuse(path, "%q is out of range: want 1 B to %d KB", text, maxPageBytes>>10)
	}
	return n
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
