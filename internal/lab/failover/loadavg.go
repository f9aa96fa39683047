// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"strconv"
	"strings"
)

// loadAverage is the kernel's of the last minute; 0 if it does not say.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
