// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is the machine that figures come from.
type Host struct {
	Kernel   string            `json:"kernel"`
	Machine  string            `json:"machine"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	MemoryKB int64             `json:"memory_kb"`
	Limits   map[string]string `json:"limits"`
}

// ReadHost describes this one. What it does not tell is empty.
func ReadHost() Host {
	h := Host{CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), Limits: limits()}
	h.MemoryKB, _ = strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel, h.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	}
	return h
}

// limits are those of the machine that a measurement may run into.
func limits() map[string]string {
	out := map[string]string{}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		out["RLIMIT_NOFILE"] = fmt.Sprintf("soft %d, hard %d", r.Cur, r.Max)
	}
	for _, key := range []string{"net/ipv4/tcp_congestion_control", "net/ipv4/tcp_max_tw_buckets", "net/core/netdev_max_backlog", "kernel/sched_autogroup_enabled"} {
		if b, err := os.ReadFile("/proc/sys/" + key); err == nil {
			out[strings.ReplaceAll(key, "/", ".")] = strings.TrimSpace(string(b))
		}
	}
	return out
}

// field is the first line of a file of "key: value" lines.
func field(path, key string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// LoadAverage is how many tasks ran or wanted to, on average of the last
// minute; 0 if the kernel does not tell.
func LoadAverage() (load float64) {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &load) // of a kernel that tells it otherwise, nothing
	}
	return load
}
