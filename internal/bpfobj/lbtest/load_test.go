// SPDX-License-Identifier: Apache-2.0

package lbtest

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"

	"imbang/internal/bpfobj"
)

// The product has nothing of the variant.
func TestProductHasNoHooks(t *testing.T) {
	product, err := bpfobj.LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	variant, err := LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	if product.Maps[ControlsMap] != nil || variant.Maps[ControlsMap] == nil {
		t.Errorf("controls: product %v, variant %v", product.Maps[ControlsMap], variant.Maps[ControlsMap])
	}
	for m := range LbFaultMapFAULT_MAPS {
		if product.Maps[m.String()] == nil {
			t.Errorf("changes of a map %s are to fail, and there is none", m)
		}
	}
	for name, p := range product.Programs {
		for _, ins := range p.Instructions {
			if ins.Symbol() == "hook_arrive" {
				t.Errorf("program %s of the product has hooks", name)
			}
		}
	}
	for name, p := range variant.Programs {
		delete(product.Programs, name)
		if p.Type != ebpf.SchedCLS && p.Type != ebpf.XDP {
			continue
		}
		if !slices.ContainsFunc(p.Instructions, func(ins asm.Instruction) bool { return ins.Symbol() == "hook_arrive" }) && name != "beat_rates" && name != "trim_table" {
			t.Errorf("program %s of the variant has no hooks", name)
		}
	}
	if len(product.Programs) > 0 {
		t.Errorf("the variant lacks programs: %v", product.Programs)
	}
}

// The verifier accepts every program of the variant: hooks take stack, and
// loops with a limit that user space sets must end for it, too.
func TestProgramsLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		t.Run(name, func(t *testing.T) {
			one := spec.Copy()
			for other := range one.Programs {
				if other != name {
					delete(one.Programs, other)
				}
			}
			for _, m := range one.Maps {
				m.MaxEntries = min(m.MaxEntries, 1024)
				m.Contents = slices.DeleteFunc(m.Contents, func(kv ebpf.MapKV) bool {
					program, linked := kv.Value.(string)
					return linked && program != name
				})
			}
			c, err := ebpf.NewCollection(one)
			var refusal *ebpf.VerifierError
			if errors.As(err, &refusal) {
				t.Fatalf("%+v", refusal)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	}
}
