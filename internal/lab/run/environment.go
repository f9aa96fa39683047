// SPDX-License-Identifier: Apache-2.0

package run

import (
	"runtime"
	"time"

	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
)

// environment describes where and for what the samples are taken. Nothing in
// it names the machine or its owner.
func (l *lab) environment(programs map[string]string, bpfStats string) record.Environment {
	h := measure.ReadHost()
	return record.Environment{
		Study: l.config.Name, StudyText: l.config.Study.Text, Plan: l.config.Plan,
		Started: time.Now(), CommandLine: l.config.CommandLine,
		Imbang: l.config.Version, Builds: l.config.Builds, Go: runtime.Version(), Programs: programs,
		Kernel: h.Kernel, Machine: h.Machine, CPU: h.CPU, CPUs: h.CPUs, MemoryKB: h.MemoryKB,
		Limits: h.Limits, BPFStats: bpfStats,
	}
}
