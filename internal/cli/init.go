// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/migrate"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

func newInitCommand() *cobra.Command {
	var file string
	var force bool
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a first configuration of imbang run from what this machine has",
		Long: `Writes a configuration with the devices of this network namespace, and the services
servers and virtual addresses of its director, if there is one, and how that is
attached. imbang run with it changes nothing of that. Other devices, and configurations of keepalived and
ldirectord that imbang import can read, are named in comments.

Without a director, the device of the default route is taken for the clients', and
another one, if there is exactly one, for the servers': correct that before you run
it. Nothing of the machine is changed.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: FILE exists, or
the director cannot be read.`,
		Example: `  imbang init
  imbang init -f /etc/imbang/imbang.yaml --force`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			table, devices, err := found()
			if err != nil {
				return err
			}
			r, err := migrate.First(table, devices)
			if err != nil {
				return err
			}
			if file == "" {
				_, err := c.OutOrStdout().Write(r.YAML())
				return err
			}
			if err := writeImported(file, r.YAML(), 0o644, force); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d services, %d servers; look through it, then imbang check %s\n", file, r.Services(), r.Servers(), file)
			return nil
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "write to this `FILE`, such as "+config.DefaultFile+", in place of standard output")
	c.Flags().BoolVar(&force, "force", false, replaces)
	return c
}

// importable are configurations that imbang import reads.
var importable = []string{"/etc/keepalived/keepalived.conf", "/etc/ha.d/ldirectord.cf", "/etc/ldirectord.cf", "/etc/ipvsadm.rules"}

// found is what there is: a table, and devices.
func found() (table []model.ServiceStatus, d migrate.Devices, err error) {
	if table, err = loaded(&d); err != nil {
		return nil, d, err
	}
	devices, err := net.Interfaces()
	if err != nil {
		return nil, d, fmt.Errorf("list devices: %w", err)
	}
	var others []string
	// Of documentation (RFC 5737): the default route's, which may be none.
	route, _ := host.Source(netip.MustParseAddr("192.0.2.1"))
	guessed := d.Client == ""
	for _, one := range devices {
		addresses, _ := one.Addrs()
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				d.Addresses = append(d.Addresses, migrate.Address{Prefix: p, Device: one.Name})
			}
		}
		if one.Flags&net.FlagLoopback != 0 {
			continue
		}
		words := make([]string, len(addresses))
		for i, a := range addresses {
			words[i] = a.String()
			if p, err := netip.ParsePrefix(a.String()); err == nil && guessed && p.Addr() == route {
				d.Client = one.Name
			}
		}
		d.Found = append(d.Found, "device "+one.Name+": "+strings.Join(words, ", "))
		if one.Flags&net.FlagUp != 0 && len(addresses) > 0 {
			others = append(others, one.Name)
		}
	}
	if guessed && d.Client != "" && len(others) == 2 {
		d.Server = others[0]
		if others[0] == d.Client {
			d.Server = others[1]
		}
	}
	for _, name := range importable {
		if _, err := os.Stat(name); err == nil {
			d.Found = append(d.Found, name+": imbang import reads it")
		}
	}
	return table, d, nil
}

// loaded is the table of the director; nothing if there is none. It notes what that is
// attached to, and how.
func loaded(into *migrate.Devices) ([]model.ServiceStatus, error) {
	d, err := director.Open()
	if errors.Is(err, director.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	services, err := d.Services()
	if err != nil {
		return nil, err
	}
	all, err := d.Attachments()
	for _, a := range all {
		noteAttachment(into, a)
	}
	return services, err
}

// noteAttachment notes one of a director's. The programs of XDP are in addition to those at
// the hook.
func noteAttachment(d *migrate.Devices, a director.Attachment) {
	switch a.Role {
	case "client":
		d.Client = a.Device
	case "server":
		d.Server = a.Device
	}
	if d.Mode == "" {
		d.Mode = string(director.ModeTC)
	}
	switch a.Hook {
	case director.HookXDP:
		d.Mode = string(director.ModeXDP)
	case director.HookXDPGeneric:
		d.Mode = string(director.ModeXDPGeneric)
	default:
		d.Hook = string(a.Hook)
	}
}
