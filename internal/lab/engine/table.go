// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"imbang/internal/lab/topology"
)

// mark is the firewall mark of the virtual service where it has several
// addresses. A service for each would give dh, lblc and lblcr one destination
// each to look at.
const mark = 1

// Table is the service in ipvsadm's own language, as `ipvsadm -S` saves it.
func Table(s Setup) string {
	var b strings.Builder
	service := serviceName(s)
	fmt.Fprintf(&b, "-A %s -s %s\n", service, s.Scheduler)
	for i, backend := range s.backends() {
		name := backend.String()
		if len(s.targets()) > 1 {
			name = backend.Addr().String() // the port is the one that clients ask for
		}
		fmt.Fprintf(&b, "-a %s -r %s -m -w %d\n", service, name, s.Weights[i])
	}
	return b.String()
}

// serviceName is how ipvsadm names the service: by its address, or of several
// by their mark.
func serviceName(s Setup) string {
	switch list := s.targets(); {
	case len(list) == 1:
		return fmt.Sprintf("-%c %s", s.protocol()[0], list[0])
	case s.Family == topology.IPv6:
		return fmt.Sprintf("-f %d -6", mark)
	}
	return fmt.Sprintf("-f %d", mark)
}
