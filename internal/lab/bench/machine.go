// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"runtime"
	"strings"
)

// Machine says where a result comes from.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	// JIT: BPF programs are compiled to the machine's code.
	JIT bool `json:"bpf_jit"`
	// Spectre is what the kernel does about the branch predictor: indirect
	// calls cost more with it, and there are more of them outside of BPF.
	Spectre string `json:"spectre_v2,omitempty"`
}

func thisMachine() Machine {
	line := func(path string) string {
		b, _ := os.ReadFile(path) // what a kernel does not say is empty
		return strings.TrimSpace(string(b))
	}
	m := Machine{
		Kernel: line("/proc/sys/kernel/osrelease"), CPUs: runtime.NumCPU(),
		JIT: line("/proc/sys/net/core/bpf_jit_enable") != "0", Spectre: line("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
	}
	for l := range strings.Lines(line("/proc/cpuinfo")) {
		if name, value, _ := strings.Cut(l, ":"); strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
		}
	}
	return m
}
