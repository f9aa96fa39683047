// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"context"

	"imbang/internal/host"
	"imbang/internal/lab/guest"
)

// prefix begins the names of what the tests make: namespaces and guests' directories.
const prefix = "imbang-peer"

// modules are what guests have beside ip_vs.
var modules = []string{
	"ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_lblc", "ip_vs_lblcr", "ip_vs_dh", "ip_vs_sh", "ip_vs_sed",
	"ip_vs_nq", "ip_vs_mh", "ip_vs_fo", "ip_vs_ovf", "ip_vs_pe_sip", "ipip",
}

// boot boots a guest in a namespace that has the tap devices.
func boot(ctx context.Context, ns *host.Namespace, taps ...string) (*guest.Guest, error) {
	run, err := host.NewRun(prefix)
	if err != nil {
		return nil, err
	}
	spec := guest.Spec{Name: run.Name("guest"), Modules: modules, Preload: *preload}
	for _, tap := range taps {
		spec.Devices = append(spec.Devices, guest.Device{Tap: tap})
	}
	return guest.Boot(ctx, ns, spec)
}
