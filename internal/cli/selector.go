// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
	"imbang/internal/model"
)

// selector is the flags by which a verb names a service and a server, as ipvsadm
// has them. Names are not looked up: addresses and ports are numbers.
type selector struct {
	tcp, udp, sctp, mark, server string
	six                          bool
	given                        func(flag string) bool
}

// protocolFlags are the flags that name a service by address and port.
var protocolFlags = []struct {
	name, short string
	protocol    model.Protocol
	word        func(*selector) *string
}{
	{"tcp-service", "t", model.TCP, func(c *selector) *string { return &c.tcp }},
	{"udp-service", "u", model.UDP, func(c *selector) *string { return &c.udp }},
	{"sctp-service", "", model.SCTP, func(c *selector) *string { return &c.sctp }},
}

func (c *selector) register(v *cobra.Command) {
	f := v.Flags()
	c.given = f.Changed
	for _, p := range protocolFlags {
		f.StringVarP(p.word(c), p.name, p.short, "", fmt.Sprintf("%s service at `ADDRESS:PORT`; ADDRESS alone: every port", p.protocol))
		_ = v.RegisterFlagCompletionFunc(p.name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return completions(func(s model.ServiceStatus) []string {
				if s.Key.Mark != 0 || s.Key.Protocol != p.protocol {
					return nil
				}
				return []string{endpointText(s.Key.Addr, s.Key.Port)}
			})
		})
	}
	f.StringVarP(&c.mark, "fwmark-service", "f", "", "service of the packets with this firewall `MARK`")
	f.BoolVarP(&c.six, "ipv6", "6", false, "of IPv6, with --fwmark-service")
	f.StringVarP(&c.server, "real-server", "r", "", "real server at `ADDRESS:PORT`; ADDRESS alone: at the service's port")
	_ = v.RegisterFlagCompletionFunc("fwmark-service", completeMarks)
	_ = v.RegisterFlagCompletionFunc("real-server", c.completeServers)
}

// endpointText is an address with its port, or alone if the port is 0.
func endpointText(a netip.Addr, port uint16) string {
	if port == 0 {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

func completeMarks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(func(s model.ServiceStatus) []string {
		if s.Key.Mark == 0 {
			return nil
		}
		return []string{strconv.FormatUint(uint64(s.Key.Mark), 10)}
	})
}

// completeServers offers the servers of the service that is named before, or all.
func (c *selector) completeServers(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	w, err := c.understand()
	return completions(func(s model.ServiceStatus) (servers []string) {
		if err == nil && !w.service(&s) {
			return nil
		}
		for _, one := range s.Servers {
			servers = append(servers, endpointText(one.Addr, one.Port))
		}
		return servers
	})
}

// selected is what the flags name; nil stands for all.
type selected struct {
	key  *model.ServiceKey
	addr *netip.AddrPort
}

func (c *selector) understand() (w selected, err error) {
	for _, p := range protocolFlags {
		if !c.given(p.name) {
			continue
		}
		at, err := parseEndpoint(*p.word(c), "a service", "10.20.0.1:80 or [2001:db8::1]:80")
		if err != nil {
			return w, err
		}
		if w.key != nil {
			return w, command.Usage(errors.New("a service is one of --tcp-service, --udp-service, --sctp-service and --fwmark-service"))
		}
		w.key = ptr(model.AddrKey(p.protocol, at))
	}
	if c.given("fwmark-service") {
		mark, err := parseMark(c.mark)
		if err != nil {
			return w, err
		}
		if w.key != nil {
			return w, command.Usage(errors.New("a service is one of --tcp-service, --udp-service, --sctp-service and --fwmark-service"))
		}
		family := model.IPv4
		if c.six {
			family = model.IPv6
		}
		w.key = ptr(model.MarkKey(mark, family))
	} else if c.six {
		return w, command.Usage(errors.New("--ipv6 is for --fwmark-service: an address says itself which family it is of"))
	}
	if !c.given("real-server") {
		return w, nil
	}
	if w.key == nil {
		return w, command.Usage(errors.New("--real-server requires its service: --tcp-service, --udp-service, --sctp-service or --fwmark-service"))
	}
	at, err := parseEndpoint(c.server, "a real server", "172.16.0.2:80 or [2001:db8::2]:80")
	if err != nil {
		return w, err
	}
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), w.key.Port)
	}
	w.addr = &at
	return w, nil
}

func ptr[T any](v T) *T { return &v }

// parseMark reads a firewall mark.
func parseMark(s string) (uint32, error) {
	mark, err := strconv.ParseUint(s, 0, 32)
	if err != nil || mark == 0 {
		return 0, command.Usage(fmt.Errorf("%q is not a mark (1 to 4294967295)", s))
	}
	return uint32(mark), nil
}

// parseEndpoint reads an address with a port, or without, which is port 0.
func parseEndpoint(s, what, such string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return netip.AddrPortFrom(addr, 0), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Addr().Zone() != "" {
		return at, command.Usage(fmt.Errorf("%q is not the address and port of %s, such as %s", s, what, such))
	}
	return at, nil
}

// service reports whether a service is among those chosen.
func (w selected) service(s *model.ServiceStatus) bool { return w.key == nil || *w.key == s.Key }

// services reads the services of the director.
func services() ([]model.ServiceStatus, error) {
	d, err := director.Open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Services()
}

// list reads the chosen services with their chosen servers, sorted by address.
func (w selected) list() ([]model.ServiceStatus, error) {
	all, err := services()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s model.ServiceStatus) bool { return !w.service(&s) })
	if w.key != nil && len(all) == 0 {
		return nil, named(fmt.Errorf("service %s: %w", *w.key, model.ErrNoService))
	}
	slices.SortFunc(all, func(a, b model.ServiceStatus) int { return compareKeys(a.Key, b.Key) })
	for i := range all {
		s := &all[i]
		s.Servers = slices.DeleteFunc(s.Servers, func(m model.ServerStatus) bool { return w.addr != nil && m.AddrPort() != *w.addr })
		if w.addr != nil && len(s.Servers) == 0 {
			return nil, named(fmt.Errorf("service %s: server %s: %w", s.Key, *w.addr, model.ErrNoServer))
		}
		slices.SortFunc(s.Servers, func(a, b model.ServerStatus) int { return a.AddrPort().Compare(b.AddrPort()) })
	}
	return all, nil
}

func compareKeys(a, b model.ServiceKey) int {
	return cmp.Or(cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Family, b.Family), a.Addr.Compare(b.Addr),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

// named adds to an error about a service or server that there is not where those
// are listed that there are.
func named(err error) error {
	if errors.Is(err, model.ErrNoService) || errors.Is(err, model.ErrNoServer) {
		return fmt.Errorf("%w (imbang ipvsadm -Ln lists all)", err)
	}
	return err
}
