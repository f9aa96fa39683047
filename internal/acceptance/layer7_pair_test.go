// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
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

// activePair are two hosts, each a director and a proxy node of both, and a client that reaches
// each virtual address by one of them.
type activePair struct {
	t       *testing.T
	network *topology.Pair
	nodes   []*proxied
	virtual map[topology.Family][2]netip.Addr
	own     map[topology.Family][2]netip.Addr
}

// newActivePair starts them with the same file, but for the link of the pair. In what names the other
// one, PEERS stands for the addresses of both. more is added to the file of a node.
func newActivePair(t *testing.T, peers string, more func(p *activePair, node int) string) *activePair {
	t.Helper()
	needRoot(t)
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	p := &activePair{t: t, virtual: map[topology.Family][2]netip.Addr{}, own: map[topology.Family][2]netip.Addr{}}
	if p.network, err = topology.BuildPair(run, topology.PairSpec{Families: topology.Families}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.network.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range topology.Families {
		first := topology.PairVirtual(f).Addr().Next()
		p.virtual[f] = [2]netip.Addr{first, first.Next()}
		p.own[f] = [2]netip.Addr{p.network.Own(f, 0), p.network.Own(f, 1)}
		for i, v := range p.virtual[f] {
			if err := p.network.Clients[0].AddRoutes(host.Route{Dst: netip.PrefixFrom(v, v.BitLen()), Via: p.own[f][i]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	key := replicationKey(t)
	for i, d := range p.network.Directors {
		withDirector(t, d)
		if err := errors.Join(d.Sysctl("net.ipv4.conf.all.arp_announce", "2"), probe.Decapsulate(d, topology.ClientDevice)); err != nil {
			t.Fatal(err)
		}
		link := fmt.Sprintf("pair: {listen: %s, peer: %s, key_file: %s}\n", topology.SyncAddress(i), topology.SyncAddress(1-i), key)
		p.nodes = append(p.nodes, proxiedIn(t, haproxytest.In(t, d), string("ab"[i]), p.config(peers)+link+more(p, i)))
	}
	// Listeners are bound already.
	for _, f := range topology.Families {
		for _, v := range p.virtual[f] {
			for _, d := range p.network.Directors {
				if err := d.AddAddresses("lo", netip.PrefixFrom(v, v.BitLen())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return p
}

// config is the file of both. Files that it names are in each process's own directory. By masquerading
// a node has itself alone as a server.
func (p *activePair) config(peers string) string {
	services, bind, all := "services:\n", map[string]bool{}, []string{}
	for _, f := range topology.Families {
		for i, own := range p.own[f] {
			all = append(all, strconv.Quote(own.String()))
			for _, m := range nodeMethods {
				virtual, servers := netip.AddrPortFrom(p.virtual[f][i], m.port), []string{}
				for j, node := range p.own[f] {
					if m.forward != "masquerading" || j == i {
						servers = append(servers, fmt.Sprintf("{name: n%d, address: %q}", j+1, netip.AddrPortFrom(node, m.port)))
					}
				}
				listen := virtual
				if m.forward == "masquerading" {
					listen = netip.AddrPortFrom(own, m.port)
				}
				bind[strconv.Quote(listen.String())] = true
				services += fmt.Sprintf("  - {name: %s-%s-%d, virtual: %q, scheduler: rr, forward: %s%s, checks: [node], servers: [%s]}\n",
					m.name, f, i+1, virtual, m.forward, m.tunnel, strings.Join(servers, ", "))
			}
		}
	}
	text := strings.Replace(webConfig(services, webServers...), strconv.Quote(webPlain), strings.Join(slices.Sorted(maps.Keys(bind)), ", "), 1)
	text = strings.Replace(text, "\nchecks:\n", nodeCheck, 1)
	text = strings.ReplaceAll(text, "DIR", "/proc/self/cwd")
	return fmt.Sprintf("director: {client_device: %s%s}\n", topology.ClientDevice, strings.ReplaceAll(peers, "PEERS", strings.Join(all, ", "))) + text
}

func (p *activePair) client() *http.Client {
	ns := p.network.Clients[0]
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial(network, address)
			return err
		})
		return c, err
	}}
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// up are the servers that a node's director has up, over all services.
func (p *activePair) up(node int) (n int) {
	for _, s := range p.nodes[node].status().Services {
		for _, one := range s.Servers {
			if one.State == "up" {
				n++
			}
		}
	}
	return n
}

// opened is how many connections each director has opened for each service.
func (p *activePair) opened() (all []map[string]int) {
	p.t.Helper()
	for _, node := range p.nodes {
		by := map[string]int{}
		for line := range strings.Lines(node.do("ipvsadm", "-Ln", "--stats", "--exact")) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "TCP" {
				n, err := strconv.Atoi(f[2])
				if err != nil {
					p.t.Fatal(err)
				}
				by[f[1]] = n
			}
		}
		all = append(all, by)
	}
	return all
}

// each sends requests to each service: both nodes serve them, the client's address arrives, and only the
// director that has the address opens a connection.
func (p *activePair) each(requests int) {
	t, client := p.t, p.client()
	t.Helper()
	before := p.opened()
	for f, virtual := range p.virtual {
		for i, v := range virtual {
			for _, m := range nodeMethods {
				url, got := "http://"+netip.AddrPortFrom(v, m.port).String(), map[string]int{}
				for range requests {
					reply, err := haproxytest.Get(client, url+"/")
					if err != nil {
						t.Fatalf("%s, %s by director %d: %v", m.name, f, i, err)
					}
					got[reply[:1]]++
				}
				want := map[string]int{"a": requests / 2, "b": requests / 2}
				if m.forward == "masquerading" {
					want = map[string]int{string("ab"[i]): requests}
				}
				if odd := shares(got, want); odd != "" {
					t.Errorf("%s, %s by director %d: %s", m.name, f, i, odd)
				}
				for range 2 {
					got, err := haproxytest.Get(client, url+"/client")
					if want := p.network.ClientAddress(f, 0).String(); err != nil || got != want {
						t.Errorf("%s, %s by director %d: the client is %q, want %s, %v", m.name, f, i, got, want, err)
					}
				}
			}
		}
	}
	after := p.opened()
	for _, virtual := range p.virtual {
		for i, v := range virtual {
			for _, m := range nodeMethods {
				service := netip.AddrPortFrom(v, m.port).String()
				for node := range p.nodes {
					want := 0
					if node == i {
						want = requests + 2
					}
					if n := after[node][service] - before[node][service]; n != want {
						t.Errorf("%s, %s: director %d opened %d connections, want %d", service, m.name, node, n, want)
					}
				}
			}
		}
	}
}

// Two hosts with the same file, each director and proxy node, both active: each serves connections of
// both, by each method and family, the client's address arrives, and no connection is balanced twice.
// The listeners are bound before their addresses are there.
func TestLayer7ActivePair(t *testing.T) {
	p := newActivePair(t, ", peers: [PEERS]", func(*activePair, int) string { return "" })
	for i := range p.nodes {
		p.nodes[i].await("all nodes are up", func() bool { return p.up(i) == 4*(1+2*4) })
	}
	p.each(10)

	// Certificates and keys reach the other one.
	a, b := p.nodes[0], p.nodes[1]
	const file = "/proc/self/cwd/shop.pem"
	a.do("peer", "push", "--yes")
	a.certificate(haproxytest.Certificate(t, "second.example"))
	a.await("the certificates differ", func() bool {
		o := imbang(t, a.host.Namespace(), "", "peer", "diff")
		return o.status == 1 && strings.Contains(o.stdout, "file "+file+"  SHA-256 ")
	})
	if said := a.do("peer", "push", "--dry-run"); !strings.Contains(said, "write file "+file+": SHA-256 ") {
		t.Errorf("the plan:\n%s", said)
	}
	a.do("peer", "push", "--yes")
	b.await("the other one presents it", func() bool { got, err := b.host.Presented(webTLS); return err == nil && got == "second.example" })
	if err := os.Remove(b.path("shop.pem")); err != nil {
		t.Fatal(err)
	}
	if said := a.do("peer", "push", "--yes"); !strings.Contains(said, "here missing") {
		t.Errorf("the push says:\n%s", said)
	}
	want, err := os.ReadFile(a.path("shop.pem"))
	got, err2 := os.ReadFile(b.path("shop.pem"))
	info, err3 := os.Stat(b.path("shop.pem"))
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || info.Mode() != 0o600 {
		t.Errorf("mode %v, same %v", info.Mode(), bytes.Equal(got, want))
	}
	// The end of a certificate is that of the one that HAProxy uses.
	a.await("both have the same certificate", func() bool {
		a, b := a.status().Proxy.Certificates, b.status().Proxy.Certificates
		return slices.Equal(a, b) && len(a) == 1 && strings.HasPrefix(a[0].Fingerprint, "SHA-256 ")
	})
	a.await("no difference", func() bool {
		o := imbang(t, a.host.Namespace(), "", "peer", "diff")
		return o.status == 0 && strings.Contains(o.stdout, "has the same configuration")
	})
}
