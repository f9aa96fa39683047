// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Advertisements of tests go from one host to another.
var (
	from4, to4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	from6      = netip.MustParseAddr("fe80::1")
)

// link is two hosts.
type link struct {
	testing.TB
	a, b *host.Namespace
}

func newLink(t testing.TB) *link {
	t.Helper()
	l := &link{TB: t, a: testenv.Namespace(t, "a"), b: testenv.Namespace(t, "b")}
	for _, ns := range []*host.Namespace{l.a, l.b} {
		for _, key := range []string{"accept_dad", "addr_gen_mode"} {
			if err := ns.Sysctl("net.ipv6.conf.default."+key, map[string]string{"accept_dad": "0", "addr_gen_mode": "1"}[key]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := host.Connect(host.End{NS: l.a, Name: "eth0"}, host.End{NS: l.b, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, addresses := range map[*host.Namespace][]string{l.a: {"192.0.2.1/24", "fe80::1/64"}, l.b: {"192.0.2.2/24", "fe80::2/64"}} {
		for _, p := range addresses {
			if err := ns.AddAddresses("eth0", netip.MustParsePrefix(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

func (l *link) open(ns *host.Namespace, six bool) (s *socket.Socket) {
	l.Helper()
	index, err := ns.LinkIndex("eth0")
	if err != nil {
		l.Fatal(err)
	}
	err = ns.Do(func() (err error) {
		s, err = socket.Open(socket.Where{Device: "eth0", Index: index, IPv6: six})
		if err == nil {
			rules := []socket.Rule{{ID: 51}}
			if !six {
				rules = append(rules, socket.Rule{ID: 52, Peers: []netip.Addr{from4}})
			}
			err = errors.Join(s.Accept(rules), s.Join(true))
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { s.Close() })
	return s
}

// rules replaces those of the second host, and reads them.
func (l *link) rules(text string) *Rules {
	l.Helper()
	var out []byte
	err := l.b.Do(func() (err error) {
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader("flush ruleset\n" + text)
		if out, err = c.CombinedOutput(); err == nil {
			out, err = exec.Command("nft", "-j", "list", "ruleset").Output()
		}
		return err
	})
	if err != nil {
		l.Fatalf("%v: %s\n%s", err, out, text)
	}
	r, err := Parse(out)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// arrives reports whether an advertisement gets from one socket to the other.
func (l *link) arrives(a, b *socket.Socket, source, to netip.Addr) bool {
	l.Helper()
	id := byte(51)
	if !to.IsMulticast() {
		id = 52
	}
	if err := a.Send([]byte{0x31, id, 100, 1, 0, 100, 0, 0, 192, 0, 2, 7}, source, to); err != nil {
		l.Fatal(err)
	}
	// Between these devices a packet is received while it is sent, or not at all.
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(b.FD()), Events: unix.POLLIN}}, 20); err != nil {
		l.Fatal(err)
	}
	got := false
	if _, err := b.Receive(func([]byte, vrrp.Packet) { got = true }); err != nil {
		l.Fatal(err)
	}
	return got
}

const head = "table inet filter {\nset odd { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.9 } }\nset nets { type ipv4_addr; flags interval; elements = { 224.0.0.0/24 } }\nchain other {\n%s\n}\nchain input { type filter hook input priority 0; policy %s;\n%s\n}\n}\n"

func inet(policy, rules string) string { return fmt.Sprintf(head, "", policy, rules) }

func jumps(policy, other, rules string) string { return fmt.Sprintf(head, other, policy, rules) }

// The kernel does what the verdicts say: multicast, unicast, and multicast of IPv6.
func TestVerdictsAreTheKernels(t *testing.T) {
	l := newLink(t)
	m4a, m4b := l.open(l.a, false), l.open(l.b, false)
	m6a, m6b := l.open(l.a, true), l.open(l.b, true)
	for _, one := range []struct {
		name, rules string
		// of IPv4 by multicast and unicast, and IPv6: p passes, d is dropped, u and U are not
		// certain, and pass or are dropped in fact
		want string
	}{
		{"none", "", "ppp"},
		{"policy", inet("drop", ""), "ddd"},
		{"accepted by name", inet("drop", "meta l4proto vrrp accept"), "ppp"},
		{"accepted by number, IPv4", inet("drop", "ip protocol 112 counter accept"), "ppd"},
		{"in a set", inet("drop", "meta l4proto { esp, vrrp } accept"), "ppp"},
		{"other protocols", inet("drop", "tcp dport 22 accept\nmeta l4proto { tcp, udp } accept\nicmp type echo-request accept"), "ddd"},
		{"destination", inet("drop", "ip daddr 224.0.0.18 accept\nip6 daddr ff02::12 accept"), "pdp"},
		{"prefix of the destination", inet("drop", "ip daddr 224.0.0.0/24 accept"), "pdd"},
		{"range of the source", inet("drop", "ip saddr 192.0.2.1-192.0.2.7 accept"), "ppd"},
		{"not from there", inet("accept", "ip saddr != 192.0.2.0/28 drop"), "ppp"},
		{"not from elsewhere", inet("accept", "ip saddr != 10.0.0.0/8 drop"), "ddp"},
		{"named set", inet("accept", "ip saddr @odd drop"), "ddp"},
		{"named set of networks", inet("drop", "ip daddr @nets accept"), "pdd"},
		{"device", inet("accept", `iifname "eth0" meta l4proto vrrp drop`), "ddd"},
		{"other device", inet("accept", `iifname "eth1" drop`+"\n"+`oifname "eth0" drop`), "ppp"},
		{"devices of a kind", inet("accept", `iifname "eth*" drop`), "ddd"},
		{"kind of packet", inet("accept", "meta pkttype multicast drop"), "dpd"},
		{"family", inet("accept", "meta nfproto ipv6 drop"), "ppd"},
		{"hops", inet("drop", "ip ttl 255 accept\nip6 hoplimit 254 accept"), "ppd"},
		{"reject", inet("accept", "meta l4proto 112 reject"), "ddd"},
		{"jump and back", jumps("drop", "tcp dport 1 drop\nip protocol 51 accept", "jump other\nmeta l4proto 112 accept"), "ppp"},
		{"jump to a drop", jumps("accept", "meta l4proto 112 drop", "jump other\naccept"), "ddd"},
		{"return", jumps("drop", "meta l4proto 112 return\naccept", "jump other"), "ddd"},
		{"goto", jumps("drop", "tcp dport 1 accept", "goto other\naccept"), "ddd"},
		{"map of verdicts", jumps("drop", "accept", "meta l4proto vmap { tcp : drop, vrrp : jump other }"), "ppp"},
		{"new flows", inet("accept", "ct state established,related accept\nct state new drop"), "dUd"},
		{"rate", inet("drop", "meta l4proto 112 limit rate 100/second accept"), "uuu"},
		{"mark", inet("accept", "meta mark 7 drop"), "uuu"},
		{"mark before an end", inet("accept", "meta mark 7 accept\ndrop"), "UUU"},
		{"later chain", inet("accept", "meta l4proto 112 accept") + "table ip late { chain in { type filter hook input priority 10; policy drop; }\n}\n", "ddp"},
		{"chain before routing", "table ip raw { chain pre { type filter hook prerouting priority -300; policy accept; ip protocol 112 drop; }\n}\n", "ddp"},
		{"way out", "table inet o { chain out { type filter hook output priority 0; policy drop; }\n}\n", "ppp"},
	} {
		t.Run(one.name, func(t *testing.T) {
			rules := l.rules(one.rules)
			for i, way := range []struct {
				a, b       *socket.Socket
				source, to netip.Addr
			}{{m4a, m4b, from4, netip.MustParseAddr("224.0.0.18")}, {m4a, m4b, from4, to4}, {m6a, m6b, from6, netip.MustParseAddr("ff02::12")}} {
				v := rules.Apply(Packet{Device: "eth0", Source: way.source, To: way.to, Protocol: 112, Name: "vrrp", Hops: 255})
				got := "p"
				if v.Effect == Dropped {
					got = "d"
				}
				if v.Effect == Unclear {
					got = "u"
				}
				want := one.want[i : i+1]
				if got != strings.ToLower(want) {
					t.Errorf("%s: %s, want %s: %v", way.to, got, want, v)
				}
				if arrived, wanted := l.arrives(way.a, way.b, way.source, way.to), want == "p" || want == "u"; arrived != wanted {
					t.Errorf("%s: it arrives: %v, want %v", way.to, arrived, wanted)
				}
			}
		})
	}
}

// A verdict names the chain that a rule can be put in front of, and the rule that drops.
func TestVerdictNamesPlace(t *testing.T) {
	l := newLink(t)
	p := Packet{Device: "eth0", Source: from4, To: to4, Protocol: 112, Name: "vrrp", Hops: 255}
	v := l.rules(jumps("accept", "meta l4proto 112 drop", "jump other")).Apply(p)
	if got := v.String(); !strings.HasPrefix(got, "table inet filter, chain input, rule with handle ") || !strings.HasSuffix(got, " of chain other") {
		t.Errorf("%s", got)
	}
	p.Out = true
	v = l.rules("table ip o { chain out { type filter hook output priority 0; policy drop; }\n}\n").Apply(p)
	if want := (Verdict{Dropped, "ip", "o", "out", "policy drop"}); v != want {
		t.Errorf("%+v, want %+v", v, want)
	}
}

// Chains of devices: nft of some versions does not print of which.
func TestChainsOfDevices(t *testing.T) {
	const form = `{"nftables": [{"chain": {"family": "netdev", "table": "n", "name": "in", "type": "filter", "hook": "ingress", "prio": 0%s, "policy": "drop"}}]}`
	for dev, want := range map[string]Effect{"": Unclear, `, "dev": "eth0"`: Dropped, `, "dev": ["eth1", "eth0"]`: Dropped, `, "dev": "eth1"`: Passes} {
		r, err := Parse(fmt.Appendf(nil, form, dev))
		if err != nil {
			t.Fatal(err)
		}
		if v := r.Apply(Packet{Device: "eth0", Source: from4, To: to4, Protocol: 112, Name: "vrrp"}); v.Effect != want {
			t.Errorf("%s: %v, want %d", dev, v, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "{", `{"nftables": [{"chain": 7}]}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
