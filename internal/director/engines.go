// SPDX-License-Identifier: Apache-2.0

package director

import "imbang/internal/bpfobj"

// engines are the persistence engines that --pe names, with the number by which
// the data plane knows each.
var engines = map[string]uint8{
	"":    uint8(bpfobj.LbEngineENGINE_NONE),
	"sip": uint8(bpfobj.LbEngineENGINE_SIP),
}

func engineName(n uint8) string {
	for name, number := range engines {
		if number == n {
			return name
		}
	}
	return "?"
}
