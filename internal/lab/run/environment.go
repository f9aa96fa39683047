// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/lab/record"
)

// environment describes where and for what the samples are taken. Nothing in
// it names the machine or its owner.
func (l *lab) environment(programs map[string]string, bpfStats string) record.Environment {
	e := record.Environment{
		Study: l.config.Name, StudyText: l.config.Study.Text, Plan: l.config.Plan,
		Started: time.Now(), CommandLine: l.config.CommandLine,
		Imbang: l.config.Version, Go: runtime.Version(), Programs: programs,
		CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(),
		Limits: limits(), BPFStats: bpfStats,
	}
	e.MemoryKB, _ = strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel, e.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	}
	return e
}

// limits are the settings that most often bound such a measurement.
func limits() map[string]string {
	out := map[string]string{}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		out["RLIMIT_NOFILE"] = fmt.Sprintf("soft %d, hard %d", r.Cur, r.Max)
	}
	for _, key := range []string{"net/ipv4/tcp_congestion_control", "net/ipv4/tcp_max_tw_buckets", "net/core/netdev_max_backlog"} {
		if b, err := os.ReadFile("/proc/sys/" + key); err == nil {
			out[strings.ReplaceAll(key, "/", ".")] = strings.TrimSpace(string(b))
		}
	}
	return out
}

// field is the value of the first "key : value" line of a /proc file.
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
