// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"
)

// dnsTypeA is the type of IPv4 addresses (RFC 1035, 3.2.2).
const dnsTypeA = 1

// dnsProbe is a check that asks a server for a name by UDP (RFC 1035, 4.1) and takes any reply.
func dnsProbe(name string, kind byte) string {
	query := []byte{0x49, 0x42, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0} // an id, recursion desired, one question
	for label := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		if n := len(label); n > 0 && n < 64 {
			query = append(append(query, byte(n)), label...)
		}
	}
	query = append(query, 0, 0, kind, 0, 1)
	return fmt.Sprintf(`udp: {send_hex: "%x", expect: ".*"}`, query)
}
