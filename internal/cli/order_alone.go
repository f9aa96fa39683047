// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

// orderAlone carries an order out without a daemon: on the table alone.
func orderAlone(q api.OrderRequest) (reply *api.OrderReply, err error) {
	d, err := director.Open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Services()
	if err != nil {
		return nil, err
	}
	reply = &api.OrderReply{}
	for _, s := range all {
		key := s.Key.String()
		if q.Service != "" && q.Service != key && q.Service != endpointText(s.Key.Addr, s.Key.Port) {
			continue
		}
		for _, one := range s.Servers {
			at := one.AddrPort()
			if q.Server != at.String() && q.Server != one.Addr.String() {
				continue
			}
			if err := orderOne(d, s.Key, at, q); err != nil {
				return nil, named(err)
			}
			reply.Servers = append(reply.Servers, api.Target{Service: key, Key: key, Server: at.String(), Address: at.String()})
		}
	}
	if len(reply.Servers) == 0 {
		return nil, fmt.Errorf("server %q: no service has a server of that address, and no daemon runs that knows names (imbang ipvsadm -Ln lists all)", q.Server)
	}
	return reply, nil
}

func orderOne(d *director.Director, k model.ServiceKey, at netip.AddrPort, q api.OrderRequest) error {
	if q.Action == api.ActionEnable {
		return d.EndDrain(k, at)
	}
	deadline := time.Duration(0)
	if q.Deadline != nil {
		deadline = time.Duration(*q.Deadline * float64(time.Second))
	}
	return d.Drain(k, at, deadline)
}

// statusAlone is the connections of all servers, without a daemon.
func statusAlone() (*api.Status, error) {
	d, err := director.Open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Services()
	if err != nil {
		return nil, err
	}
	s := &api.Status{}
	for _, service := range all {
		out := api.Service{Key: service.Key.String()}
		for _, one := range service.Servers {
			out.Servers = append(out.Servers, api.Server{Address: one.AddrPort().String(), Active: one.Active, Inactive: one.Inactive})
		}
		s.Services = append(s.Services, out)
	}
	return s, nil
}
