// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"imbang/internal/lab/record"
)

// proxies are the engines that are processes, whose CPU time is all of theirs but for what
// softirqs did on other tasks' time.
var proxies = []string{"haproxy-tcp", "haproxy-http", "imbang-l7", "nginx-stream", "nginx-http"}

// repliesPerCore is what a core carries that a proxy has for itself.
var repliesPerCore = Metric{
	Key: "replies_per_core", Title: "Replies per core", Name: "replies per core", Unit: "1/s", Decimals: 0,
	Meaning: "requests divided by the CPU time of the proxy's processes, of the daemon and the supervisor too; packets that softirqs handle on " +
		"the time of others are left out",
	fields: []string{"replies"},
	value: func(s record.Sample) (float64, bool) {
		n, t := max(s.Load.Generator.Requests, s.Load.Replies), s.CPU.Director.Time
		if !s.CPU.Director.Known || t <= 0 || !slices.Contains(proxies, s.Engine) {
			return 0, false
		}
		return float64(n) / t.Seconds(), true
	},
}
