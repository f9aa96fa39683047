// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"

	"github.com/cilium/ebpf"
)

// loadCollection loads programs and tables, with these tables instead of new ones. The programs have
// no lines of their source, of which the kernel would keep 2.5 MB for the log of a refusal alone: a
// program that is refused is loaded again with them, for that log.
func loadCollection(spec *ebpf.CollectionSpec, tables map[string]*ebpf.Map) (*ebpf.Collection, error) {
	opts := ebpf.CollectionOptions{MapReplacements: tables}
	bare := spec.Copy()
	for _, p := range bare.Programs {
		for i, ins := range p.Instructions {
			p.Instructions[i] = ins.WithSource(nil)
		}
	}
	objs, err := ebpf.NewCollectionWithOptions(bare, opts)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		objs, err = ebpf.NewCollectionWithOptions(spec, opts)
	}
	if err != nil {
		return nil, explainLoad(err)
	}
	return objs, nil
}
