// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"time"

	"imbang/internal/model"
)

// replicate applies what another director told, and expects no error of any.
func (r *rig) replicate(entries ...model.Connection) {
	r.Helper()
	errs, err := r.Replicate(entries)
	r.must(err)
	r.must(errs...)
}

// replica is a connection as another director tells it.
func replica(s model.ServiceKey, client, server string) model.Connection {
	at := netip.MustParseAddrPort(server)
	return model.Connection{
		Protocol: s.Protocol, State: "ESTABLISHED", Expires: 15 * time.Minute, Client: netip.MustParseAddrPort(client),
		Virtual: netip.AddrPortFrom(s.Addr, s.Port), Server: at, RealServer: at, Service: s, Forward: model.Masquerade,
	}
}

// replicaTemplate is a template likewise.
func replicaTemplate(s model.ServiceKey, network, server string) model.Connection {
	c := replica(s, network+":0", server)
	c.Template, c.State, c.Timeout, c.Forward = true, model.TemplateNone, time.Minute, 0
	return c
}
