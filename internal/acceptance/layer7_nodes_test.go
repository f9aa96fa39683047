// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/topology"
)

// nodeCheck asks nodes for their monitors.
const nodeCheck = `
checks:
  node:
    http: {requests: [{path: /imbang-health, status: 200}]}
    interval: 1 s
    fast_interval: 200 ms
    timeout: 1 s
    rise: 2
    fall: 3
    jitter: 0 %
`

// nodeMethods are the ways from a director to a node.
var nodeMethods = []struct {
	name, forward, tunnel string
	port                  uint16 // of the service
}{
	{"masquerading", "masquerading", "", 80},
	{"direct-routing", "direct-routing", "", 81},
	{"ipip", "tunnel", "", 82},
	{"gre", "tunnel", ", tunnel: {type: gre}", 83},
	{"gue", "tunnel", ", tunnel: {type: gue, port: 6080}", 84},
}

// nodes are proxies behind a director, which reaches them by all methods.
type nodes struct {
	*keeper
	all []*proxied
}

// newNodes have the same file, but for backends' servers: each has its own.
func newNodes(t *testing.T, n int) *nodes {
	k := newKeeper(t, n, nodeCheck, topology.Families...)
	ns := &nodes{keeper: k}
	services, bind := "services:\n", []string{}
	for _, f := range topology.Families {
		for _, m := range nodeMethods {
			virtual := netip.AddrPortFrom(k.Virtual(f), m.port)
			servers := []string{}
			for i, s := range k.Servers {
				at := netip.AddrPortFrom(s.Addr[f], m.port)
				servers = append(servers, fmt.Sprintf("{name: n%d, address: %q}", i+1, at))
				if m.forward == "masquerading" {
					bind = append(bind, strconv.Quote(at.String()))
				}
			}
			if m.forward != "masquerading" {
				bind = append(bind, strconv.Quote(virtual.String()))
			}
			services += fmt.Sprintf("  - {name: %s-%s, virtual: %q, scheduler: rr, forward: %s%s, checks: [node], servers: [%s]}\n", m.name, f, virtual, m.forward, m.tunnel, strings.Join(servers, ", "))
		}
	}
	for i, s := range k.Servers {
		k.kill(i) // its nginx
		ns.prepare(i)
		bind := append(slices.Clip(bind), strconv.Quote(ns.beside(topology.IPv4, i).String()), strconv.Quote(routed.String()))
		ns.all = append(ns.all, proxiedIn(t, haproxytest.In(t, s.Namespace), fmt.Sprintf("n%d-s", i+1),
			strings.Replace(webConfig("", webServers...), strconv.Quote(webPlain), strings.Join(bind, ", "), 1)))
	}
	k.configure(nodeCheck + services)
	k.do("reload")
	return ns
}

// beside is where clients reach a node without a director.
func (ns *nodes) beside(f topology.Family, i int) netip.AddrPort {
	return netip.AddrPortFrom(ns.ClientNetworkAddress(f, 100+i).Addr(), 80)
}

// routed is where clients reach a node by a router, where there is one.
var routed = netip.MustParseAddrPort("10.90.2.2:90")

// prepare has a node reply to clients in the virtual addresses' names by itself, and in its own by the
// director.
func (ns *nodes) prepare(i int) {
	ns.t.Helper()
	node := ns.Servers[i].Namespace
	fabric, port := ns.Uplink()
	var virtual []netip.Addr
	var own []netip.Prefix
	for _, f := range topology.Families {
		virtual, own = append(virtual, ns.Virtual(f)), append(own, ns.ClientNetworkAddress(f, 100+i))
	}
	err := errors.Join(topology.ReplyDirectly(node, func(device string) error {
		return fabric.Share(port, host.End{NS: node, Name: device, MAC: fmt.Sprintf("02:00:00:0a:02:%02x", i+1)})
	}, virtual, own), probe.Decapsulate(node, "eth0"))
	if err != nil {
		ns.t.Fatal(err)
	}
	for f, flag := range map[topology.Family]string{topology.IPv4: "-4", topology.IPv6: "-6"} {
		for _, args := range [][]string{
			{"rule", "add", "from", ns.Servers[i].Addr[f].String(), "lookup", "100"},
			{"route", "add", "default", "via", ns.Gateways(f)[1].String(), "dev", "eth0", "table", "100"},
		} {
			if o := finish(ns.t, node, exec.Command("ip", append([]string{flag}, args...)...), ""); o.status != 0 {
				ns.t.Fatalf("ip %v: %+v", args, o)
			}
		}
	}
}

// url is that of a method.
func (ns *nodes) url(f topology.Family, port uint16) string {
	return "http://" + netip.AddrPortFrom(ns.Virtual(f), port).String()
}

// who replies to some requests, by all methods: those nodes that do by each of them, or what is wrong.
func (ns *nodes) who(client *http.Client) (all string) {
	for _, f := range topology.Families {
		for _, m := range nodeMethods {
			seen := map[string]bool{}
			for range 2 * len(ns.all) {
				reply, err := haproxytest.Get(client, ns.url(f, m.port)+"/")
				if err != nil {
					return fmt.Sprintf("%s, %s: %v", m.name, f, err)
				}
				name, _, _ := strings.Cut(reply, "-")
				seen[name] = true
			}
			now := strings.Join(slices.Sorted(maps.Keys(seen)), "")
			if all != "" && now != all {
				return fmt.Sprintf("%s, %s: %s, and %s by those before", m.name, f, now, all)
			}
			all = now
		}
	}
	return all
}

// wait waits until the director's checks have found the change.
func (ns *nodes) wait(what, want string, client *http.Client) {
	ns.t.Helper()
	got := ""
	await(ns.t, what, func() error {
		if got = ns.who(client); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}

// Two nodes of layer 7 behind a director, by each method and family: the client's address arrives
// without the PROXY protocol, and a node that drains, or has no servers, gets no new connections
// within the time of its check. A drain fails no request.
func TestLayer7Nodes(t *testing.T) {
	ns := newNodes(t, 2)
	client := ns.httpClient(t)
	ns.await("the nodes are up", func() bool { return ns.who(client) == "n1n2" })
	for _, f := range topology.Families {
		for _, m := range nodeMethods {
			if got, err := haproxytest.Get(client, ns.url(f, m.port)+"/client"); err != nil || !ns.isClient(f, got) {
				t.Errorf("%s, %s: the client is %q, %v", m.name, f, got, err)
			}
		}
	}
	var loads []*haproxytest.Load
	of := haproxytest.In(t, ns.Clients[0].Namespace)
	for _, f := range topology.Families {
		for _, m := range nodeMethods {
			loads = append(loads, of.Load(ns.url(f, m.port)+"/", 10))
		}
	}
	ns.all[0].do("proxy", "drain")
	ns.wait("n1 drains", "n2", client)
	ns.all[0].do("proxy", "enable")
	ns.wait("n1 is enabled", "n1n2", client)
	for i, load := range loads {
		all := load.Stop()
		if failed := haproxytest.Failed(all); len(failed) > 0 || len(all) < 10 {
			t.Errorf("load %d, %s: %d of %d requests failed: %+v", i, nodeMethods[i%len(nodeMethods)].name, len(failed), len(all), failed[:min(len(failed), 1)])
		}
	}
	for _, s := range ns.all[1].servers {
		s.Close()
	}
	ns.wait("n2 has no servers", "n1", client)
	for i, s := range ns.all[1].servers {
		ns.all[1].servers[i] = ns.all[1].host.Serve(s.Name, fmt.Sprintf("127.0.1.%d:8000", i+1))
	}
	ns.wait("n2 has servers again", "n1n2", client)
	url := ns.url(topology.IPv4, 80) + "/cart"
	want := netip.AddrPortFrom(ns.Servers[0].Addr[topology.IPv4], 80).String()
	other := netip.AddrPortFrom(ns.Servers[1].Addr[topology.IPv4], 80).String()
	if said := ns.do("why", "--url", url, "--client", "10.10.0.2"); !strings.Contains(said, "scheduler rr") || !strings.Contains(said, "would choose "+want) && !strings.Contains(said, "would choose "+other) {
		t.Errorf("why says\n%s", said)
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
