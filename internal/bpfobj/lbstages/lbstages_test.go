// SPDX-License-Identifier: Apache-2.0

package lbstages

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"imbang/internal/bpfobj"
)

// The names are those of enum stage, and the product has no marks.
func TestVariant(t *testing.T) {
	variant, err := LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := variant.Types.TypeByName("stage", &enum); err != nil {
		t.Fatal(err)
	}
	for _, v := range enum.Values {
		switch {
		case v.Name == "STAGES_ALL":
			if int(v.Value) != len(Names) {
				t.Errorf("%d stages, %d names", v.Value, len(Names))
			}
		case int(v.Value) >= len(Names) || v.Name != "STAGE_"+strings.ToUpper(Names[v.Value]):
			t.Errorf("stage %d is %s", v.Value, v.Name)
		}
	}
	product, err := bpfobj.LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	if product.Maps[CostsMap] != nil || variant.Maps[CostsMap] == nil {
		t.Errorf("the table of costs: product %v, variant %v", product.Maps[CostsMap], variant.Maps[CostsMap])
	}
	for _, counts := range []bool{false, true} {
		spec, err := Load(counts)
		if err != nil {
			t.Fatal(err)
		}
		var is uint32
		if err := spec.Variables["stage_counts"].Get(&is); err != nil || (is == 1) != counts {
			t.Errorf("counts %v: %d, %v", counts, is, err)
		}
	}
}
