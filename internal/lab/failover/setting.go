// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/topology"
)

// The ways that packets go to servers. By direct routing and tunnel servers have the virtual
// address, and reply to clients without the directors.
const (
	masquerading = "masquerading"
	direct       = "direct"
	tunnel       = "tunnel"
)

// Methods lists them.
var Methods = []string{masquerading, direct, tunnel}

// forward is what configurations call them.
var forward = map[string]string{masquerading: "masquerading", direct: "direct-routing", tunnel: "tunnel"}

// ParseFamily reads 4, 6 or both.
func ParseFamily(s string) ([]topology.Family, error) {
	switch s {
	case "4":
		return []topology.Family{topology.IPv4}, nil
	case "6":
		return []topology.Family{topology.IPv6}, nil
	case "both":
		return slices.Clone(topology.Families), nil
	}
	return nil, fmt.Errorf("family %q: must be 4, 6 or both", s)
}

// Setting is what the services of a cell are: of which family, and how packets go to servers.
type Setting struct {
	Family topology.Family `json:"family"`
	Method string          `json:"method"`
}

// plain is the setting of studies that know no other one.
var plain = Setting{topology.IPv4, masquerading}

// orPlain fills in what a stored study does not say.
func (s Setting) orPlain() Setting {
	if s.Family == "" {
		s.Family = plain.Family
	}
	if s.Method == "" {
		s.Method = plain.Method
	}
	return s
}

// family is a family's name for people.
func family(f topology.Family) string { return strings.Replace(string(f), "ip", "IP", 1) }

func (s Setting) String() string { return family(s.Family) + ", " + s.Method }

// replyDirectly reports whether servers reply without the directors.
func (s Setting) replyDirectly() bool { return s.Method != masquerading }
