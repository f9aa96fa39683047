// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"

	"imbang/internal/model"
)

// ConnectionFilter says which entries of the connection table are read. The zero
// value selects all.
type ConnectionFilter struct {
	Client netip.Prefix // not valid: any. A template's client is its network's address
	// Service is the address of a virtual service; port 0: of any port; not valid: any.
	// It is the service that the entry's server belongs to: connections to a service of
	// every port have that one, whatever port they go to.
	Service  netip.AddrPort
	Mark     uint32         // of a fwmark service; 0: any
	Server   netip.AddrPort // where packets go; port 0: any; not valid: any
	State    string         // of ConnectionStates; empty: any
	Protocol model.Protocol // 0: any
	Kind     EntryKind
}

// EntryKind is a kind of entries in the connection table.
type EntryKind uint8

// Kinds of entries.
const (
	AnyEntry EntryKind = iota
	OnlyConnections
	OnlyTemplates
)

func (f *ConnectionFilter) kind(template bool) bool {
	return f.Kind == AnyEntry || (f.Kind == OnlyTemplates) == template
}

func (f *ConnectionFilter) accepts(c *model.Connection) bool {
	return f.kind(c.Template) &&
		(f.Protocol == 0 || f.Protocol == c.Protocol) &&
		(f.State == "" || f.State == c.State) &&
		(!f.Client.IsValid() || f.Client.Contains(c.Client.Addr())) &&
		(f.Mark == 0 || f.Mark == c.Service.Mark) &&
		matches(f.Service, c.Service.Addr, c.Service.Port) &&
		matches(f.Server, c.Server.Addr(), c.Server.Port())
}

// matches compares an address and port with what is wanted.
func matches(want netip.AddrPort, addr netip.Addr, port uint16) bool {
	return !want.IsValid() || want.Addr() == addr && (want.Port() == 0 || want.Port() == port)
}
