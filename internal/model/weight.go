// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
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
// weight that they withhold, in percent. The zero value is Up.
type Health uint8

const (
	Up   Health = 0   // the whole weight counts
	Down Health = 100 // the server is quiescent, whatever its weight
)

// Effective is the weight that the kernel schedules by. A server that has an
// administrative weight and is neither down nor draining has at least 1: lowered is not
// down.
func Effective(administrative int32, h Health, draining bool) int32 {
	if administrative <= 0 || h >= Down || draining {
		return 0
	}
	return int32(max(1, int64(administrative)*int64(Down-h)/100))
}

// Valid reports whether h withholds no more than everything.
func (h Health) Valid() bool { return h <= Down }

// Percent is the share of the administrative weight that is left.
func (h Health) Percent() int { return int(Down) - int(min(h, Down)) }

// String is "up", "down", or the share that is left, as "40%".
func (h Health) String() string {
	switch {
	case h == Up:
		return "up"
	case h >= Down:
		return "down"
	}
	return fmt.Sprintf("%d%%", h.Percent())
}

// ParseHealth reads what String writes, and 0% and 100%.
func ParseHealth(s string) (Health, error) {
	switch s {
	case "up":
		return Up, nil
	case "down":
		return Down, nil
	}
	if digits, ok := strings.CutSuffix(s, "%"); ok {
		if n, err := strconv.ParseUint(digits, 10, 8); err == nil && n <= 100 {
			return Down - Health(n), nil
		}
	}
	return 0, fmt.Errorf("%w: health %q: want up, down, or a share of the weight from 0%% to 100%%", ErrInvalid, s)
}
