// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"net/netip"
	"slices"

	"imbang/internal/model"
)

// Devices are what a machine's first configuration begins with.
type Devices struct {
	Client, Server string // empty: not known, or the clients' one
	Mode, Hook     string // of the director that is attached; empty: there is none
	Addresses      []Address
	Found          []string // a line for each device and file, as comments
}

// Address is a virtual address that the machine has.
type Address struct {
	Prefix netip.Prefix
	Device string
}

// First makes a machine's first configuration from the table that is there.
func First(table []model.ServiceStatus, d Devices) (*Result, error) {
	t := newRecorded(newResult("the table"))
	t.devices = &d
	t.from = place{file: "the table"}
	for _, s := range table {
		if err := t.AddService(s.Service); err != nil {
			return nil, err
		}
		for _, one := range s.Servers {
			if err := t.AddServer(s.Key, one.Server); err != nil {
				return nil, err
			}
		}
	}
	d.Addresses = slices.DeleteFunc(d.Addresses, func(a Address) bool {
		return !slices.ContainsFunc(table, func(s model.ServiceStatus) bool { return s.Key.Addr == a.Prefix.Addr() })
	})
	return t.result(), nil
}

func (d *Devices) write(p func(string, ...any)) {
	p("# Written by imbang init. Try it with: imbang check, imbang plan.\n#")
	for _, line := range d.Found {
		p("# %s", oneLine(line))
	}
	if d.Client == "" {
		p("\n# director:\n#   client_device: eth0 # clients' packets come in here\n#   server_device: eth1 # and real servers' replies here")
		return
	}
	p("\ndirector:\n  client_device: %s # clients' packets come in here", quoted(d.Client))
	if d.Server != "" && d.Server != d.Client {
		p("  server_device: %s # and real servers' replies here", quoted(d.Server))
	}
	if d.Mode != "" {
		p("  mode: %s\n  hook: %s", d.Mode, d.Hook)
	}
	if len(d.Addresses) == 0 {
		p("  # addresses: # virtual addresses that the daemon configures\n  #   - address: 10.20.0.1/32")
		return
	}
	p("  addresses: # virtual addresses, which the daemon keeps configured")
	for _, a := range d.Addresses {
		p("    - {address: %s, device: %s}", quoted(a.Prefix.String()), quoted(a.Device))
	}
}
