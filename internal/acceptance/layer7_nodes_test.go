// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/lab/topology"
)

// nodesConfig has a director check its nodes by their monitors.
const nodesConfig = `
checks:
  node:
    http: {requests: [{path: /imbang-health, status: 200}]}
    interval: 200 ms
    timeout: 150 ms
    rise: 2
    fall: 3
    jitter: 0 %
services:
  - name: shop
    virtual: VIP:80
    scheduler: rr
    checks: [node]
    servers: [{name: n1, address: "S1:8080"}, {name: n2, address: "S2:8080"}]
`

// nodeConfig is the file of a node: each has the same but for the address.
func nodeConfig(address netip.Addr) string {
	return strings.Replace(webConfig("", webServers...), webPlain, netip.AddrPortFrom(address, 8080).String(), 1)
}

// Two nodes of layer 7 behind a director: the client's address arrives, and a node that drains, or
// has no servers, gets no new connections.
func TestLayer7Nodes(t *testing.T) {
	for _, family := range []topology.Family{topology.IPv4, topology.IPv6} {
		t.Run(string(family), func(t *testing.T) {
			config := nodesConfig
			if family == topology.IPv6 {
				config = strings.NewReplacer("VIP:80", "\"[VIP]:80\"", "S1:8080", "[S1]:8080", "S2:8080", "[S2]:8080").Replace(config)
			}
			k := newKeeper(t, 2, config, family)
			var nodes []*proxied
			for i, s := range k.Servers {
				k.kill(i) // its nginx
				nodes = append(nodes, proxiedIn(t, haproxytest.In(t, s.Namespace), fmt.Sprintf("n%d-s", i+1), nodeConfig(s.Addr[family])))
			}
			client := k.httpClient(t)
			url := "http://" + netip.AddrPortFrom(k.Virtual(family), 80).String()
			who := func(n int) (nodes string) {
				seen := map[string]bool{}
				for range n {
					reply, err := haproxytest.Get(client, url+"/")
					if err != nil {
						return err.Error()
					}
					name, _, _ := strings.Cut(reply, "-")
					seen[name] = true
				}
				for _, name := range []string{"n1", "n2"} {
					if seen[name] {
						nodes += name
					}
				}
				return nodes
			}
			nodes[0].await("both nodes", func() bool { return who(10) == "n1n2" })
			got, err := haproxytest.Get(client, url+"/client")
			if err != nil || !k.isClient(family, got) {
				t.Errorf("the client is %q, %v", got, err)
			}
			nodes[0].do("proxy", "drain")
			nodes[0].await("n2 alone", func() bool { return who(10) == "n2" })
			nodes[0].do("proxy", "enable")
			nodes[0].await("both again", func() bool { return who(10) == "n1n2" })
			for i := range 3 {
				nodes[1].servers[i].Close()
			}
			nodes[0].await("n1 alone", func() bool { return who(10) == "n1" })
			if said := k.do("why", "--url", url+"/cart", "--client", got); !strings.Contains(said, "scheduler rr") || !strings.Contains(said, "would choose "+netip.AddrPortFrom(k.Servers[0].Addr[family], 8080).String()) {
				t.Errorf("why says\n%s", said)
			}
		})
	}
}

// httpClient is one in a client's namespace, with a connection for each request.
func (f *farm) httpClient(t *testing.T) *http.Client {
	ns := f.Clients[0].Namespace
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial(network, address)
			return err
		})
		return c, err
	}}
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// isClient reports whether an address is of the clients' network.
func (f *farm) isClient(family topology.Family, text string) bool {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	for _, c := range f.Clients {
		if c.Own[family] == a || slices.Contains(c.Addresses[family], a) {
			return true
		}
	}
	return false
}
