// SPDX-License-Identifier: Apache-2.0

package config

import (
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// pools are the backends as services. Their names cannot be those of virtual services.
func (c *layer7Checker) pools() (pools []Service) {
	for _, b := range c.out.Backends {
		p := Service{
			Backend: b.Name, Name: operator.ServiceID{Backend: b.Name}.String(), OnFailure: Quiesce, AllDown: Refuse, Quorum: 1, DrainDeadline: b.DrainDeadline, SendProxy: b.SendProxy,
		}
		for _, s := range b.Servers {
			p.Servers = append(p.Servers, Server{
				Server: model.Server{Addr: s.Address.Addr(), Port: s.Address.Port(), Weight: int32(s.Weight), Forward: model.Masquerade},
				Name:   s.Name, Checks: c.out.Checks[l7.ServerID{Backend: b.Name, Server: s.Name}],
			})
		}
		pools = append(pools, p)
	}
	return pools
}
