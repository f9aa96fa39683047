// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// A listing of a thousand servers must not wait a thousand times for a
// resolver that is slow or not there. After a question that got no answer for
// dnsPatience, or dnsBudget spent on all together, no other is asked.
const (
	dnsPatience = 2 * time.Second
	dnsBudget   = 10 * time.Second
)

// dns is what is asked for names that no file has.
type dns interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

// names translates host and service names as the C library does from its
// files, and then the DNS. Only IPv4 addresses are found by name, because
// ipvsadm asks for nothing else.
type names struct {
	hostsFile, servicesFile string
	dns                     dns // nil once it is no longer asked
	spent                   time.Duration

	read     bool // the files below are read
	hosts    []hostLine
	services []serviceLine
	reverse  map[netip.Addr]string // what hostName found
}

type hostLine struct {
	addr  netip.Addr
	names []string // the canonical one first
}

type serviceLine struct {
	names    []string // the official one first
	port     uint16
	protocol string
}

func systemNames() *names {
	return &names{
		hostsFile:    "/etc/hosts",
		servicesFile: "/etc/services",
		dns:          &net.Resolver{PreferGo: true},
	}
}

// load reads the files at the first need. One that cannot be read has no
// names in it.
func (n *names) load() {
	if n.read {
		return
	}
	n.read = true
	n.reverse = make(map[netip.Addr]string)
	for _, f := range fieldsOf(n.hostsFile) {
		addr, err := netip.ParseAddr(f[0])
		if err == nil && len(f) > 1 {
			n.hosts = append(n.hosts, hostLine{addr, f[1:]})
		}
	}
	for _, f := range fieldsOf(n.servicesFile) {
		if len(f) < 2 {
			continue
		}
		port, protocol, ok := strings.Cut(f[1], "/")
		number, isNumber := cUnsigned(port)
		if ok && protocol != "" && isNumber && number <= 65535 {
			all := append([]string{f[0]}, f[2:]...)
			n.services = append(n.services, serviceLine{all, uint16(number), protocol})
		}
	}
}

// fieldsOf returns the words of each line of a file, without comments.
func fieldsOf(file string) (lines [][]string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			lines = append(lines, f)
		}
	}
	return lines
}

// host finds the IPv4 address of a name.
func (n *names) host(name string) (netip.Addr, bool) {
	if name == "" {
		return netip.Addr{}, false
	}
	n.load()
	for _, h := range n.hosts {
		if !h.addr.Is4() {
			continue
		}
		for _, alias := range h.names {
			if strings.EqualFold(alias, name) {
				return h.addr, true
			}
		}
	}
	found, ok := ask(n, func(ctx context.Context) ([]netip.Addr, error) {
		return n.dns.LookupNetIP(ctx, "ip4", name)
	})
	if !ok {
		return netip.Addr{}, false
	}
	return found.Unmap(), true
}

// hostName finds the name of an address, or spells the address.
func (n *names) hostName(a netip.Addr) string {
	n.load()
	for _, h := range n.hosts {
		if h.addr == a {
			return h.names[0]
		}
	}
	if name, known := n.reverse[a]; known {
		return name
	}
	name, ok := ask(n, func(ctx context.Context) ([]string, error) {
		return n.dns.LookupAddr(ctx, a.String())
	})
	if name = strings.TrimSuffix(name, "."); !ok || name == "" {
		name = formatAddr(a)
	}
	n.reverse[a] = name
	return name
}

// ask puts one question to the DNS and returns the first answer.
func ask[T any](n *names, question func(context.Context) ([]T, error)) (first T, ok bool) {
	if n.dns == nil {
		return first, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), dnsPatience)
	defer cancel()
	asked := time.Now()
	answers, err := question(ctx)
	n.spent += time.Since(asked)
	var failure *net.DNSError
	if ctx.Err() != nil || n.spent > dnsBudget || errors.As(err, &failure) && failure.IsTimeout {
		n.dns = nil
	}
	if err != nil || len(answers) == 0 {
		return first, false
	}
	return answers[0], true
}

// protocolNames are the protocols as /etc/services writes them.
var protocolNames = map[model.Protocol]string{model.TCP: "tcp", model.UDP: "udp", model.SCTP: "sctp"}

// port reads a port number or finds a service's.
func (n *names) port(s string, proto model.Protocol) (uint16, bool) {
	if v, ok := parseNumber(s, 0, 65535); ok {
		return uint16(v), true
	}
	n.load()
	for _, line := range n.services {
		if line.protocol != protocolNames[proto] {
			continue
		}
		for _, alias := range line.names {
			if alias == s {
				return line.port, true
			}
		}
	}
	return 0, false
}

// portName finds the name of a port, or spells the number.
func (n *names) portName(port uint16, proto model.Protocol) string {
	n.load()
	for _, line := range n.services {
		if line.port == port && line.protocol == protocolNames[proto] {
			return line.names[0]
		}
	}
	return strconv.Itoa(int(port))
}
