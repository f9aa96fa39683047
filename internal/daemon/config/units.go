// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
	"time"
)

// maxTime bounds all times: longer ones are mistakes.
const maxTime = 365 * 24 * time.Hour

// duration reads "5 s", "500 ms", "15 min" or "180 d", of at least low; without text it is
// otherwise.
func (c *checker) duration(path, text string, low, otherwise time.Duration) time.Duration {
	if text == "" && !c.tree.Has(path) {
		return otherwise
	}
	d, err := parseDuration(text)
	switch {
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s s or %s ms", text, text, text)
	case err != nil:
		c.refuse(path, "%q is not a time: write a number with ms, s, min, h or d, such as 5 s", text)
	case d < low || d > maxTime:
		c.refuse(path, "%s is out of range: want %s to 365 days", text, low)
	default:
		return d
	}
	return otherwise
}

func parseDuration(text string) (time.Duration, error) {
	narrow := strings.ReplaceAll(text, " ", "")
	if days, is := strings.CutSuffix(narrow, "d"); is && isNumber(days) {
		d, err := time.ParseDuration(days + "h")
		return max(-maxTime, min(d, maxTime)) * 24, err // more is out of range in any case
	}
	return time.ParseDuration(strings.Replace(narrow, "min", "m", 1))
}

// maxTimer bounds times that HAProxy keeps in 31 bits of milliseconds.
const maxTimer = 24 * 24 * time.Hour

// timer is a duration of at least low that fits HAProxy's timers.
func (c *checker) timer(path, text string, low, otherwise time.Duration) time.Duration {
	d := c.duration(path, text, low, otherwise)
	if d > maxTimer {
		c.refuse(path, "%s is out of range: want at most 24 d", text)
	}
	return d
}

// size reads "64 KiB" or "10 MiB", between two bounds; without text it is 0.
func (c *checker) size(path, text string, low, high int64) int64 {
	if text == "" && !c.tree.Has(path) {
		return 0
	}
	units := []struct {
		name  string
		bytes float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}
	if isNumber(text) {
		c.refuse(path, "%s has no unit: write %s B or %s KiB", text, text, text)
		return 0
	}
	for _, u := range units {
		number, is := strings.CutSuffix(text, u.name)
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !is || err != nil {
			continue
		}
		if n *= u.bytes; !(n >= float64(low) && n <= float64(high)) {
			c.refuse(path, "%s is out of range: want %s to %s", text, sizeText(low), sizeText(high))
			return 0
		}
		return int64(n)
	}
	c.refuse(path, "%q is not a size: write a number with B, KiB, MiB or GiB, such as 10 MiB", text)
	return 0
}

// sizeText is a size in the largest unit of which it is a multiple.
func sizeText(n int64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if n%1024 != 0 {
			return strconv.FormatInt(n, 10) + " " + unit
		}
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + " GiB"
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
