// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"runtime"
	"time"

	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
)

// environment describes where and for what the samples are taken. Nothing in
// it names the machine or its owner.
func (l *lab) environment(programs map[string]string, bpfStats string) (record.Environment, error) {
	configurations, err := l.configurations()
	if err != nil {
		return record.Environment{}, err
	}
	h := measure.ReadHost()
	return record.Environment{
		Study: l.config.Name, StudyText: l.config.Study.Text, Plan: l.config.Plan,
		Started: time.Now(), CommandLine: l.config.CommandLine,
		Imbang: l.config.Version, Builds: l.config.Builds, Go: runtime.Version(), Programs: programs, Configurations: configurations,
		Kernel: h.Kernel, Machine: h.Machine, CPU: h.CPU, CPUs: h.CPUs, MemoryKB: h.MemoryKB,
		Limits: h.Limits, BPFStats: bpfStats,
	}, nil
}

// configurations are those of the competitors. Where a study has two families,
// they differ in addresses alone, and those of the first are stored.
func (l *lab) configurations() (map[string]string, error) {
	list := map[string]string{}
	for _, c := range l.config.Plan.Competitors {
		text, err := l.engines[c.Engine].Configuration(l.setup(c, l.config.Study.Families[0]))
		if err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", c.Name, err)
		}
		list[c.Name] = text
	}
	return list, nil
}
