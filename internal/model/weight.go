// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A server has four values, kept apart:
//
//	administrative  the weight that the user set (ipvsadm -w); Server.Weight
//	health          what health checks leave of it; Health
//	draining        whether it gets no new connections; ServerStatus.Draining
//	effective       the weight that the kernel schedules by; Effective
//
// The effective weight follows from the others and is set by nobody.

// Health is what health checks say of a server: the share of its administrative
// weight that they withhold. The zero value is Up. Its unit is 1/25300, so that whole
// percents and the 253rds of keepalived's dynamic weights are exact.
type Health uint16

const (
	Up      Health = 0             // the whole weight counts
	Down    Health = 100 * Percent // the server is quiescent, whatever its weight
	Percent Health = 253           // of the weight
)

// Leaves is the health that leaves a share of the weight: part of whole.
func Leaves(part, whole int) Health {
	return Down - Health(int(Down)*min(max(part, 0), whole)/whole)
}

// Effective is the weight that the kernel schedules by. A server that has an
// administrative weight and is neither down nor draining has at least 1: lowered is not
// down.
func Effective(administrative int32, h Health, draining bool) int32 {
	if administrative <= 0 || h >= Down || draining {
		return 0
	}
	return int32(max(1, int64(administrative)*int64(Down-h)/int64(Down)))
}

// Valid reports whether h withholds no more than everything.
func (h Health) Valid() bool { return h <= Down }

// Percent is the share of the administrative weight that is left, to three decimals, which tell each
// value from every other.
func (h Health) Percent() float64 { return percents(Down - min(h, Down)) }

func percents(h Health) float64 { return math.Round(1000*float64(h)/float64(Percent)) / 1000 }

// String is "up", "down", or the share that is left, as "40%" or "0.395%".
func (h Health) String() string {
	switch {
	case h == Up:
		return "up"
	case h >= Down:
		return "down"
	}
	return strconv.FormatFloat(h.Percent(), 'f', -1, 64) + "%"
}

// ParseHealth reads what String writes, and 0% and 100%.
func ParseHealth(s string) (Health, error) {
	switch s {
	case "up":
		return Up, nil
	case "down":
		return Down, nil
	}
	if digits, ok := strings.CutSuffix(s, "%"); ok && strings.Trim(digits, "0123456789.") == "" {
		if n, err := strconv.ParseFloat(digits, 64); err == nil && n <= 100 {
			left := unitsOf(n)
			if n > 0 {
				left = max(left, 1) // lowered is not down
			}
			return Down - left, nil
		}
	}
	return 0, fmt.Errorf("%w: health %q: want up, down, or a share of the weight from 0%% to 100%%", ErrInvalid, s)
}

func unitsOf(percents float64) Health { return Health(math.Round(percents * float64(Percent))) }

// MarshalJSON writes the percents that are withheld.
func (h Health) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, percents(min(h, Down)), 'f', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *Health) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(n >= 0 && n <= 100) {
		return fmt.Errorf("%w: health %s: want the percents that are withheld, from 0 to 100", ErrInvalid, text)
	}
	*h = unitsOf(n)
	return nil
}
