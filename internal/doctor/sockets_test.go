// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// Sockets at all addresses are found with their process, at whatever port; those of one address and
// those of clients are not.
func TestGatherSockets(t *testing.T) {
	ns := testenv.Namespace(t, "doc")
	for _, ports := range []string{"32768 60999", "1024 65535"} {
		var got []Socket
		var open []io.Closer
		listen := func(network string, all ...string) (c io.Closer, err error) {
			for _, at := range all {
				if network == "tcp4" {
					c, err = net.Listen(network, at)
				} else {
					c, err = net.ListenPacket(network, at)
				}
				if err != nil {
					return nil, err
				}
				open = append(open, c)
			}
			return c, nil
		}
		if err := errors.Join(ns.Up("lo"), ns.Sysctl("net.ipv4.ip_local_port_range", ports), ns.Do(func() error {
			_, err := listen("tcp4", "0.0.0.0:2200", "127.0.0.1:2201")
			_, err2 := listen("udp4", "0.0.0.0:2202", "0.0.0.0:51820", "127.0.0.1:2203")
			_, err3 := listen("udp6", "[::]:40000")
			_, err4 := listen("udp", "0.0.0.0:0", "[::]:0") // a client that is not connected
			connected, err5 := net.DialUDP("udp4", &net.UDPAddr{Port: 2204}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2203})
			query, err6 := listen("udp4", "0.0.0.0:2205") // of a resolver that chooses ports itself
			if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
				return err
			}
			open = append(open, connected)
			got = gatherSockets(func(time.Duration) { _ = query.Close() })
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		for _, c := range open {
			_ = c.Close()
		}
		var want []Socket
		for _, s := range []Socket{{Protocol: model.TCP, Port: 2200}, {Protocol: model.UDP, Port: 2202}, {Protocol: model.UDP, Port: 40000, IPv6: true}, {Protocol: model.UDP, Port: 51820}} {
			s.Process, s.Program = os.Getpid(), program(os.Getpid())
			want = append(want, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("range %s: %v, want %v", ports, got, want)
		}
	}
}
