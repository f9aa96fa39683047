// SPDX-License-Identifier: Apache-2.0

// Package probe sends packets and counts them at the other end with BPF
// programs of its own, at a cost that no socket reaches: an Emitter and a Sink,
// between which the lab puts what it measures. The programs are in bpf/lab.
package probe

//go:generate go tool bpf2go -go-package probe -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 $BPF_CFLAGS" -type tally -type sample sink ../../../bpf/lab/sink.bpf.c
//go:generate go tool bpf2go -go-package probe -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 $BPF_CFLAGS" -type order flood ../../../bpf/lab/flood.bpf.c

import (
	"net"

	"imbang/internal/director"
)

// ethernet finds a device that carries Ethernet frames.
func ethernet(name string) (*net.Interface, error) {
	if err := director.CheckMode(name, name, director.ModeTC); err != nil {
		return nil, err
	}
	return net.InterfaceByName(name)
}
