// SPDX-License-Identifier: Apache-2.0

// Package lbstages holds the variant of the data plane that measures itself:
// bpf/lb.bpf.c compiled with IMBANG_STAGES, which adds up the time, or the calls of
// maps, of each stage of a packet's path (bpf/stage.h).
//
// Only the lab imports it; the types of its tables are bpfobj's. The object is
// compiled and committed as those of bpfobj are.
package lbstages

import (
	"errors"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -go-package lbstages -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DIMBANG_STAGES $BPF_CFLAGS" -type stage -type stage_cost -type stage_costs Lb ../../../bpf/lb.bpf.c

// CostsMap is the name of the global data that holds the costs, an LbStageCosts.
const CostsMap = ".data.stages"

// Load reads the variant. It measures time; with counts, it counts look-ups and
// changes of map elements instead.
func Load(counts bool) (*ebpf.CollectionSpec, error) {
	spec, err := LoadLb()
	if err != nil || !counts {
		return spec, err
	}
	v := spec.Variables["stage_counts"]
	if v == nil {
		return nil, errors.New("the variant has no variable stage_counts")
	}
	return spec, v.Set(uint32(1))
}

// Names are those of the stages, by LbStage. The first one is empty: the cost of
// a mark.
var Names = []string{"empty", "parse", "find", "open", "follow", "route", "rewrite", "transmit", "report"}
