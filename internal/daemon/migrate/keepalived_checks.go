// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// checking is a checker while it is read.
type checking struct {
	*statement
	settings
	connection
	of      checked
	steered bool           // its connections go as the traffic does, if they can
	to      netip.Addr     // connect_ip, if the check goes there
	server  netip.AddrPort // that requests name
	hosts   []connection   // of SMTP_CHECK
	urls    []*statement   // of HTTP_GET and SSL_GET
	sni     bool
	sniName string
	dnsType byte
	dnsName string
	payload []byte // of UDP_CHECK
	reply   bool   // require_reply
	script  scriptCheck
}

// connection is where a checker connects to.
type connection struct {
	port uint16 // connect_port; 0: none
	wait time.Duration
}

// checkerKind is one kind of checker.
type checkerKind struct {
	kind       string                              // of names of checks
	portless   bool                                // it connects to no port
	steered    bool                                // it is of tcp or http, which go as the traffic does (checks.NAME.steered)
	retries    int64                               // unless retry says it
	retryDelay time.Duration                       // unless delay_before_retry says it; 0: the interval
	bodies     func(*keepalived, *checking) []body // the checks that it becomes; nil: none
	block      blockKind[*checking]
}

// body is a check without its port and times.
type body []string

// commonKeys are the keywords of all checkers, and connectionKeys of those that connect.
var commonKeys = keys(timings[*checking](numeral{low: 0, high: math.MaxUint32, lenient: true}), map[string]keyword[*checking]{
	"alpha":            boolean(func(c *checking, value bool) { c.alpha = value }),
	"log_all_failures": lost[*checking]("not needed: imbang events has what changed a state"),
})

var connectionKeys = map[string]keyword[*checking]{
	"connect_ip": connectAddress,
	"connect_port": number(portForm, func(*checking) string { return "the server's port" },
		func(c *checking, n int64) { c.port = uint16(n) }),
	"connect_timeout": unlessUnset(ofTimeout, duration(ofTimeout, time.Millisecond,
		func(c *checking) string { return span(c.wait) },
		func(c *checking, t time.Duration) { c.wait = t })),
	"bindto":    fromKernel,
	"bind_port": fromKernel,
	"bind_if":   fromKernel,
	"fwmark":    lost[*checking]("checks have no firewall mark: the kernel routes them to the server"),
}

var fromKernel = lost[*checking]("checks are sent from the address that the kernel chooses")

// connectAddress is the address that a checker connects to.
func connectAddress(k *keepalived, c *checking, s *statement) {
	a, ok := plainAddress(s.word(1))
	switch {
	case !ok:
		k.lose(s.place, s.text(), "not an address: left out, as by keepalived")
	case slices.ContainsFunc(c.of.of.targets, func(t target) bool { return c.destination(t) != a }):
		k.lose(s.place, s.text(), "checks are of the server itself: for another address use a script")
		c.to = netip.Addr{}
	default:
		c.to = a
	}
}

// destination is the address that a check goes to: the server's, or the virtual one of a
// service if the check goes as its traffic does.
func (c *checking) destination(t target) netip.Addr {
	server := c.of.server
	if c.steered && server.method != "masquerading" && t.mark == 0 && t.at.Addr().Is4() == server.addr.Is4() {
		return t.at.Addr()
	}
	return server.addr
}

// checkerKinds are keepalived's checkers.
var checkerKinds = map[string]checkerKind{
	"TCP_CHECK":  {"tcp", false, true, 1, time.Second, fixed("tcp: {}"), checkerBlock("TCP_CHECK", commonKeys, connectionKeys)},
	"PING_CHECK": {"icmp", true, false, 1, time.Second, fixed("icmp: {}"), checkerBlock("PING_CHECK", commonKeys, connectionKeys)},
	"HTTP_GET":   {"http", false, true, 1, 3 * time.Second, (*keepalived).requests, checkerBlock("HTTP_GET", commonKeys, connectionKeys, httpKeys)},
	"SSL_GET":    {"https", false, true, 1, 3 * time.Second, (*keepalived).requests, checkerBlock("SSL_GET", commonKeys, connectionKeys, httpKeys)},
	"SMTP_CHECK": {"smtp", false, true, 1, time.Second, (*keepalived).greeting, checkerBlock("SMTP_CHECK", commonKeys, connectionKeys, smtpKeys)},
	"DNS_CHECK":  {"dns", false, false, 3, 0, (*keepalived).dnsQuery, checkerBlock("DNS_CHECK", commonKeys, connectionKeys, dnsKeys)},
	"UDP_CHECK":  {"udp", false, false, 1, time.Second, (*keepalived).datagram, checkerBlock("UDP_CHECK", commonKeys, connectionKeys, udpKeys)},
	"MISC_CHECK": {"script", true, false, 0, time.Second, (*keepalived).scriptBody, checkerBlock("MISC_CHECK", commonKeys, scriptKeys)},
	"FILE_CHECK": {block: checkerBlock("FILE_CHECK", map[string]keyword[*checking]{"track_file": unread, "weight": unread})},
	"BFD_CHECK":  {block: checkerBlock("BFD_CHECK", map[string]keyword[*checking]{"name": unread, "alpha": boolean(func(*checking, bool) {})})},
}

func checkerBlock(name string, tables ...map[string]keyword[*checking]) blockKind[*checking] {
	return blockKind[*checking]{name, keys(tables...), []string{"url", "host"}}
}

// unread is a keyword of a checker that is left out as a whole.
var unread = word(func(*checking, string) {})

func fixed(line string) func(*keepalived, *checking) []body {
	return func(*keepalived, *checking) []body { return []body{{line}} }
}

// checker enters a checker, and returns the names of the checks that it became.
func (k *keepalived) checker(s *statement, in settings, of checked) (names []string) {
	kind := checkerKinds[s.words[0]]
	c := &checking{statement: s, settings: in, of: of, steered: kind.steered, connection: connection{wait: in.timeout}, dnsType: defaultDNSType}
	kind.block.read(k, c, s.block)
	if kind.bodies == nil {
		k.lose(s.place, s.text(), "there is no such check: the server is not checked this way")
		return nil
	}
	for _, to := range c.connections() {
		port, said := of.port(to.port)
		if !kind.portless && port == 0 {
			k.lose(s.place, s.words[0], "has no port to connect to: write connect_port; the server is not checked this way")
			return nil
		}
		c.server = netip.AddrPortFrom(of.server.addr, port)
		if c.to.IsValid() {
			c.server = netip.AddrPortFrom(c.to, port)
		}
		times := c.timing(kind, to.wait).lines(k.Result, s.place)
		for _, b := range kind.bodies(k, c) {
			if said && !kind.portless {
				b = append(b, fmt.Sprintf("port: %d", port))
			}
			names = append(names, k.add(kind.kind, s.place, append(b, times...)))
		}
	}
	return names
}

// connections are where the checker connects to: SMTP_CHECK can have several.
func (c *checking) connections() []connection {
	if len(c.hosts) == 0 {
		return []connection{c.connection}
	}
	for _, s := range c.block {
		if connectionKeys[s.words[0]] != nil {
			return append([]connection{c.connection}, c.hosts...)
		}
	}
	return c.hosts
}

// timing is when a checker checks: the interval is its delay_loop, and while an alive server
// fails it is asked again after delay_before_retry, retry times.
func (c *checking) timing(kind checkerKind, timeout time.Duration) timing {
	t := timing{
		interval: c.delay, fast: cmp.Or(kind.retryDelay, c.delay), timeout: timeout, spread: c.delay,
		rise: 1, fall: int(kind.retries) + 1, initial: "up",
	}
	if kind.kind == "script" { // as long as to its next turn, unless misc_timeout says it
		t.timeout = cmp.Or(c.script.timeout, c.delay)
	}
	if c.retry != nil {
		t.fall = int(*c.retry) + 1
	}
	if c.retryDelay != nil {
		t.fast = *c.retryDelay
	}
	if c.warmup != nil {
		t.spread = *c.warmup
	}
	if c.alpha {
		t.initial = "down"
	}
	return t
}
