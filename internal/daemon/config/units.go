// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
	"time"
)

// maxTime bounds all times: longer ones are mistakes.
const maxTime = 365 * 24 * time.Hour

// duration reads "5 s", "500 ms" or "15 min", of at least low; without text it is
// otherwise.
func (c *checker) duration(path, text string, low, otherwise time.Duration) time.Duration {
	if text == "" && !c.tree.Has(path) {
		return otherwise
	}
	d, err := time.ParseDuration(strings.Replace(strings.ReplaceAll(text, " ", ""), "min", "m", 1))
	switch {
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s s or %s ms", text, text, text)
	case err != nil:
		c.refuse(path, "%q is not a time: write a number with ms, s, min or h, such as 5 s", text)
	case d < low || d > maxTime:
		c.refuse(path, "%s is out of range: want %s to 365 days", text, low)
	default:
		return d
	}
	return otherwise
}

// share reads "50 %" as 0.5; without text it is otherwise.
func (c *checker) share(path, text string, otherwise float64) float64 {
	if text == "" && !c.tree.Has(path) {
		return otherwise
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !percent || err != nil || !(n >= 0 && n <= 100) {
		c.refuse(path, "%q: want a share from 0 %% to 100 %%", text)
		return otherwise
	}
	return n / 100
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
