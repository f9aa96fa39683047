// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// A server of a service with a persistence engine may open connections to
// clients (bpf/outbound.h). Its packets name no service: of several servers with
// one address and port, Linux knows the one that was added last
// (ip_vs_find_real_service). If that is of a service without an engine, nothing
// is opened; neither is for a service of a firewall mark or of every port, which
// has no address and port to send from (ip_vs_new_conn_out).

// outbound finds the servers that may open connections, by address and port.
func (t *table) outbound() map[bpfobj.LbEndpoint]uint32 {
	last := map[bpfobj.LbEndpoint]uint32{}
	for _, ids := range t.order {
		for _, id := range ids {
			s := t.servers[id]
			at, ok := outboundAt(s)
			if !ok {
				continue
			}
			if other, taken := last[at]; !taken || t.servers[other].Added < s.Added {
				last[at] = id
			}
		}
	}
	for at, id := range last {
		owner := t.servers[id].Owner
		svc := t.services[owner]
		if svc == nil || svc.Engine == uint8(bpfobj.LbEngineENGINE_NONE) || owner.Fwmark != 0 || owner.Port == 0 {
			delete(last, at)
		}
	}
	return last
}

// outboundAt is where a server's datagrams come from, if they come through the
// director.
func outboundAt(s bpfobj.LbServer) (at bpfobj.LbEndpoint, ok bool) {
	udp := s.Owner.Fwmark != 0 || model.Protocol(s.Owner.Protocol) == model.UDP
	if !udp || s.Port == 0 || s.Forward != bpfobj.LbForwardFORWARD_MASQ {
		return at, false
	}
	return bpfobj.LbEndpoint{Addr: s.Addr, Port: s.Port, Protocol: uint8(model.UDP)}, true
}

// writeOutbound tells the kernel of them, at the end of an edit.
func (d *Director) writeOutbound() error {
	if d.table == nil {
		return nil // a lone edit, which there is none of with engines
	}
	set, err := d.config()
	if err != nil || set.Engines == 0 && d.table.total.engines == 0 {
		return err
	}
	wanted := d.table.outbound()
	err = deleteKeys(d.maps.Outbound, func(at bpfobj.LbEndpoint, id uint32) bool {
		now, known := wanted[at]
		if known && now == id {
			delete(wanted, at)
		}
		return !known
	})
	if err != nil {
		return err
	}
	for at, id := range wanted {
		err := d.maps.Outbound.Put(at, id)
		if errors.Is(err, ebpf.ErrKeyExist) || err == nil {
			continue
		}
		return fmt.Errorf("write the servers that may open connections (at most %d): %w", d.maps.Outbound.MaxEntries(), err)
	}
	return nil
}
