// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"net/netip"
	"strings"
)

// parseAddressLine reads what `ip -o monitor address` says when a device gets an address or
// loses it:
//
//	2: ext0    inet 10.20.0.1/32 scope global ext0\       valid_lft forever preferred_lft forever
//	Deleted 2: ext0    inet6 fd00:20::1/128 scope global nodad \       valid_lft ...
//
// Other lines of a console are none.
func parseAddressLine(line string) (device string, a netip.Prefix, has, is bool) {
	rest, deleted := strings.CutPrefix(line, "Deleted ")
	f := strings.Fields(rest)
	if len(f) < 4 || !strings.HasSuffix(f[0], ":") || f[2] != "inet" && f[2] != "inet6" {
		return "", a, false, false
	}
	a, err := netip.ParsePrefix(f[3])
	if err != nil {
		return "", a, false, false
	}
	return f[1], a, !deleted, true
}
