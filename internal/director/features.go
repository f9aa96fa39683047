// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// needed are the kernel's parts that the data plane cannot do without, newest
// first, with the release that brought them.
var needed = []struct {
	helper  asm.BuiltinFunc
	name    string
	release string
}{
	{asm.FnMapLookupPercpuElem, "bpf_map_lookup_percpu_elem", "5.19"},
	{asm.FnLoop, "bpf_loop", "5.17"},
	{asm.FnTimerInit, "bpf_timer_init", "5.15"},
	{asm.FnKtimeGetCoarseNs, "bpf_ktime_get_coarse_ns", "5.11"},
	{asm.FnRedirectNeigh, "bpf_redirect_neigh", "5.10"},
	{asm.FnFibLookup, "bpf_fib_lookup", "4.18"},
}

// MissingFeatures names what this kernel lacks.
func MissingFeatures() []string {
	var missing []string
	for _, n := range needed {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, n.helper); errors.Is(err, ebpf.ErrNotSupported) {
			missing = append(missing, fmt.Sprintf("%s (Linux %s)", n.name, n.release))
		}
	}
	if err := features.HaveProgramType(ebpf.Syscall); errors.Is(err, ebpf.ErrNotSupported) {
		missing = append(missing, "programs of type syscall (Linux 5.14)")
	}
	return missing
}

// explainLoad turns the kernel's refusal to load the data plane into what is
// missing, if that can be told.
func explainLoad(err error) error {
	if missing := MissingFeatures(); len(missing) > 0 {
		return fmt.Errorf("this kernel cannot run the director: it has no %s", strings.Join(missing, ", no "))
	}
	return fmt.Errorf("load the data plane: %w", err)
}
