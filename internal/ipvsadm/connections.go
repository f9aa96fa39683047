// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"

	"imbang/internal/model"
)

// connections prints the connection table while it is read. With engines there are titles for
// the data by which persistence engines identify templates, and templates have it.
func (l *listing) connections(t Table, engines bool) error {
	const columns = "%-3s %-6s %-11s %-18s %-18s %s\n"
	title := func() {
		destination := "destination"
		if engines {
			destination = fmt.Sprintf("%-18s %-16s %s", destination, "pe name", "pe_data")
		}
		l.w.WriteString("IPVS connection entries\n")
		fmt.Fprintf(l.w, columns, "pro", "expire", "state", "source", "virtual", destination)
	}
	titled := false // when the table was found to be readable
	for c, err := range t.Connections() {
		if err != nil {
			return err
		}
		if !titled {
			title()
			titled = true
		}
		server := l.formatEndpoint(c.Server.Addr(), c.Server.Port(), c.Protocol)
		if engines && c.Engine != "" {
			server = fmt.Sprintf("%-16s %-18s %s", server, c.Engine, c.EngineData)
		}
		left := max(seconds(c.Expires), 0)
		fmt.Fprintf(l.w, columns, connProtocol(c.Protocol), fmt.Sprintf("%02d:%02d", left/60, left%60), c.State,
			l.formatEndpoint(c.Client.Addr(), c.Client.Port(), c.Protocol),
			l.formatEndpoint(c.Virtual.Addr(), c.Virtual.Port(), c.Protocol),
			server)
	}
	if !titled {
		title()
	}
	return nil
}

// connProtocol names a protocol as the kernel's connection table does: the
// templates of fwmark services have none, and say IP.
func connProtocol(p model.Protocol) string {
	if p == 0 {
		return "IP"
	}
	return p.String()
}
