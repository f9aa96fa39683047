// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A socket at all addresses is reachable at a virtual one, unless a service has its port.
func TestExamineSockets(t *testing.T) {
	ssh := Socket{Protocol: model.TCP, Port: 22, Process: 812, Program: "sshd"}
	of := func(change func(*Socket)) Socket { s := ssh; change(&s); return s }
	six := service("[fd00:20::1]:80", reached(model.Masquerade))
	every := service("10.20.0.1:0", reached(model.Masquerade))
	const remedy = "iptables -I INPUT -d 10.20.0.1 -p tcp --dport 22 -j DROP"
	for name, c := range map[string]struct {
		services []Service
		sockets  []Socket
		want     string // the remedies; "" if there is nothing to say
	}{
		"ssh":                        {nil, []Socket{ssh}, remedy},
		"ssh at ::":                  {nil, []Socket{of(func(s *Socket) { s.IPv6 = true })}, remedy},
		"both":                       {nil, []Socket{ssh, of(func(s *Socket) { s.IPv6 = true })}, remedy},
		"a port with a service":      {nil, []Socket{of(func(s *Socket) { s.Port = 80 })}, ""},
		"the other protocol":         {nil, []Socket{of(func(s *Socket) { s.Port, s.Protocol = 80, model.UDP })}, "iptables -I INPUT -d 10.20.0.1 -p udp --dport 80 -j DROP"},
		"a service of all ports":     {[]Service{every}, []Socket{ssh}, ""},
		"another host's address":     {[]Service{{ServiceStatus: service("10.20.0.1:80").ServiceStatus}}, []Socket{ssh}, ""},
		"IPv6":                       {[]Service{six}, []Socket{of(func(s *Socket) { s.IPv6 = true })}, "ip6tables -I INPUT -d fd00:20::1 -p tcp --dport 22 -j DROP"},
		"IPv4 alone, IPv6's address": {[]Service{six}, []Socket{ssh}, ""},
		"two addresses":              {[]Service{service("10.20.0.1:80"), service("10.20.0.2:80"), service("10.20.0.3:22")}, []Socket{ssh}, "iptables -I INPUT -d 10.20.0.1,10.20.0.2 -p tcp --dport 22 -j DROP"},
		"addresses of both families, :: alone": {[]Service{service("10.20.0.1:80"), six}, []Socket{of(func(s *Socket) { s.IPv6 = true })},
			remedy + "; ip6tables -I INPUT -d fd00:20::1 -p tcp --dport 22 -j DROP"},
		"addresses of both families": {[]Service{service("10.20.0.1:80"), six}, []Socket{ssh, of(func(s *Socket) { s.IPv6 = true })},
			remedy + "; ip6tables -I INPUT -d fd00:20::1 -p tcp --dport 22 -j DROP"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			if c.services != nil {
				f.Services = c.services
			}
			f.Sockets = c.sockets
			var got []string
			for _, found := range Examine(f) {
				if found.Subject == "sockets" && found.Level != OK {
					got = append(got, found.Remedy)
				}
			}
			if all := strings.Join(got, "; "); all != c.want {
				t.Errorf("%q, want %q", all, c.want)
			}
		})
	}
}

// Sockets at all addresses are found with their process; those of one address are not.
func TestGatherSockets(t *testing.T) {
	ns := testenv.Namespace(t, "doc")
	var got []Socket
	if err := ns.Do(func() error {
		for network, at := range map[string][]string{"tcp4": {"0.0.0.0:2200", "127.0.0.1:2201"}, "udp4": {"0.0.0.0:2202", "127.0.0.1:2203"}} {
			for _, one := range at {
				if network == "tcp4" {
					l, err := net.Listen(network, one)
					if err != nil {
						return err
					}
					defer l.Close()
					continue
				}
				c, err := net.ListenPacket(network, one)
				if err != nil {
					return err
				}
				defer c.Close()
			}
		}
		got = gatherSockets()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	self := Socket{Process: os.Getpid(), Program: program(os.Getpid())}
	want := []Socket{{Protocol: model.TCP, Port: 2200, Process: self.Process, Program: self.Program}, {Protocol: model.UDP, Port: 2202, Process: self.Process, Program: self.Program}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
