// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
)

func (r *render) listener(l *l7.Listener) {
	defer r.about("listener %s", strings.Map(visible, l.Name))()
	if err := checkName(l.Name); err != nil {
		r.fail(err)
		return
	}
	r.section("frontend", l.Name)
	r.binds(l)
	if !l.HTTP2 {
		// Without it a connection that begins as HTTP/2 is taken as that.
		r.line("option disable-h2-upgrade")
	}
	if l.Limits.Connections > 0 {
		r.line("maxconn", strconv.Itoa(l.Limits.Connections))
	}
	r.clientTimeouts(&l.Timeouts)
	for _, p := range l.AcceptProxy {
		r.line("tcp-request connection expect-proxy layer4 if { src", p.Masked().String(), "}")
	}
	if len(l.TrustedProxies) > 0 {
		r.acl("imbang-of-trusted", "src", "", prefixes(l.TrustedProxies)) // of connections
	}
	r.connections(l)
	r.counted(l)
	r.monitor(l)
	r.unusual(l)
	r.log(l)
	r.resets(l)
	r.client(l)
	r.framing(l)
	r.hops()
	r.raw(l.Raw, false)
	r.limits(l)
	r.forwarded(l)
	r.routes(l)
}

// binds are the addresses of a listener.
func (r *render) binds(l *l7.Listener) {
	tls := r.tls(l)
	if l.HTTP3 {
		switch {
		case l.TLS == nil:
			r.failf("http3 requires tls: add it, or remove http3")
		case !r.version.Features["QUIC"]:
			r.cannot("serve HTTP/3 (it is built without QUIC)", "remove http3, or install a package with QUIC")
		case !r.version.AtLeast(2, 8):
			r.cannot("serve HTTP/3 outside of experiments", "remove http3, or install 2.8 or later")
		}
	}
	if len(l.Bind) == 0 {
		r.failf("has no address: add one to bind")
	}
	for _, a := range l.Bind {
		// transparent: an address that comes and goes (VRRP) is bound also while it is not here.
		words := []string{"bind", bindAddress(a), "transparent"}
		if l.TLS == nil {
			r.line(words...)
			continue
		}
		alpn := "http/1.1"
		if l.HTTP2 {
			alpn = "h2,http/1.1"
		}
		r.line(append(append(words, tls...), "alpn", alpn)...)
		if l.HTTP3 {
			family := "quic4@"
			if a.Addr().Is6() {
				family = "quic6@"
			}
			r.line(append(append([]string{"bind", family + bindAddress(a)}, tls...), "alpn h3")...)
		}
	}
}

// bindAddress is an address as HAProxy reads it. An IPv6 address serves IPv6 alone.
func bindAddress(a netip.AddrPort) string {
	if a.Addr().Is6() {
		return fmt.Sprintf("[%s]:%d v6only", a.Addr(), a.Port())
	}
	return a.String()
}

// tls are the words of a bind line, beside ALPN.
func (r *render) tls(l *l7.Listener) []string {
	t := l.TLS
	if t == nil {
		return nil
	}
	if len(t.Certificates) == 0 {
		r.failf("tls has no certificate: add a file to tls.certificates")
	}
	var list strings.Builder
	for _, c := range t.Certificates {
		r.fail(file("certificate", c))
		fmt.Fprintln(&list, c)
	}
	// A list, since certificates are added to one at run time.
	name := "certificates-" + l.Name
	r.lists = append(r.lists, File{name, list.String()})
	words := []string{"ssl crt-list", word(r.path(name))}
	if t.StrictSNI {
		words = append(words, "strict-sni")
	}
	switch t.MinVersion {
	case "", "1.2":
		words = append(words, "ssl-min-ver TLSv1.2")
	case "1.3":
		words = append(words, "ssl-min-ver TLSv1.3")
	default:
		r.failf("tls.min_version %q: use 1.2 or 1.3", t.MinVersion)
	}
	if t.Ciphers != "" {
		r.fail(printable("ciphers", t.Ciphers))
		words = append(words, "ciphers", word(t.Ciphers))
	}
	if t.ClientCA != "" {
		r.fail(file("client CA", t.ClientCA))
		words = append(words, "ca-file", word(t.ClientCA), "verify required")
	}
	return words
}

// securityHeaders are those of replies through TLS.
func (r *render) securityHeaders(l *l7.Listener) {
	if l.TLS != nil && l.TLS.HSTS > 0 {
		r.line("http-after-response set-header Strict-Transport-Security", fmt.Sprintf("max-age=%d", l.TLS.HSTS/time.Second))
	}
	if l.HTTP3 {
		r.line("http-after-response set-header Alt-Svc", word(`h3=":%[dst_port]"; ma=900`))
	}
}

// client makes src that of a trusted proxy's client, whom the proxy names last: for routes, limits,
// logs, hashes and raw lines alike. A client that is named in another form, such as a word,
// is not known, and not the proxy either: 0.0.0.0.
func (r *render) client(l *l7.Listener) {
	if len(l.TrustedProxies) == 0 {
		return
	}
	// The proxy itself, or whom a header of the PROXY protocol names as it; fc_src would not heed that.
	r.line("http-request set-var(txn.imbang_peer) src")
	r.acl("imbang-from-trusted", "var(txn.imbang_peer)", "-m ip", prefixes(l.TrustedProxies))
	r.line("http-request set-src str(0.0.0.0) if imbang-from-trusted { req.fhdr(X-Forwarded-For) -m found }")
	r.line("http-request set-src req.hdr_ip(X-Forwarded-For,-1) if imbang-from-trusted")
}

// claims is a regular expression of headers by which proxies say who the client is; servers by CGI and its
// likes take _ for -.
const claims = `^(?:forwarded$|x[-_]forwarded|x-real[-_]ip$|x_real)`

// claimsIf is for which requests these headers are removed: what clients say of themselves holds only if they are
// trusted. Raw lines may have added such a header; without them, it is one that a client has sent.
func claimsIf(l *l7.Listener) string {
	switch {
	case len(l.TrustedProxies) > 0:
		return "!imbang-from-trusted"
	case len(l.Raw) > 0:
		return "TRUE"
	}
	return isUnusual
}

// forwarded tells servers who the client is.
func (r *render) forwarded(l *l7.Listener) {
	if !l.ForwardedFor {
		return
	}
	proto := "http"
	if l.TLS != nil {
		proto = "https"
	}
	r.line("http-request del-header", word(claims), "-m reg if", claimsIf(l))
	if len(l.TrustedProxies) == 0 {
		r.line("http-request add-header X-Forwarded-Proto", proto) // there is none
		r.line("http-request add-header X-Forwarded-For %ci")      // src, of which it takes less time to write
	} else {
		r.line("http-request set-header X-Forwarded-Proto", proto, "if !imbang-from-trusted || !{ req.fhdr(X-Forwarded-Proto) -m found }")
		r.line("http-request add-header X-Forwarded-For %[var(txn.imbang_peer)]")
	}
}

// monitor is the path that other nodes check.
func (r *render) monitor(l *l7.Listener) {
	if l.Monitor == "" {
		return
	}
	names := l.BackendNames()
	if l.MonitorBackends < 0 || l.MonitorBackends > len(names) {
		r.failf("monitor requires %d usable backends, but the listener has %d: lower monitor_backends", l.MonitorBackends, len(names))
	}
	r.fail(pathText("monitor", l.Monitor))
	several := l.MonitorBackends > 1
	if several { // variables of monitor fail are set before it, where http-request is after
		r.line("tcp-request content set-var(txn.imbang_usable) int(0) if { path -m str --", word(l.Monitor), "}")
		for _, b := range names {
			r.line("tcp-request content set-var(txn.imbang_usable)", word("nbsrv("+b+"),bool,add(txn.imbang_usable)"), "if { var(txn.imbang_usable) -m found }")
		}
	}
	r.line("monitor-uri", word(l.Monitor))
	r.line("monitor fail unless { srv_is_up(" + NodeBackend + "/" + NodeServer + ") }")
	// A process that stops, as the old one does after a reload, has nbsrv 0 of every backend: it only
	// knows whether the node drains.
	switch {
	case several:
		r.line("monitor fail unless { stopping } || { var(txn.imbang_usable) -m int ge", strconv.Itoa(l.MonitorBackends), "}")
	case l.MonitorBackends == 1: // any
		r.line("acl imbang-usable stopping")
		for _, b := range names {
			r.line("acl imbang-usable", word("nbsrv("+b+")"), "gt 0")
		}
		r.line("monitor fail unless imbang-usable")
	}
}

// acl is a condition with all values that are its alternatives; a line of HAProxy's has 64
// words at most, and lines of one name add up.
func (r *render) acl(name, fetch, flags string, values []string) {
	const most = 40
	for len(values) > 0 {
		n := min(most, len(values))
		words := []string{"acl", name, fetch, flags, "--"}
		for _, v := range values[:n] {
			words = append(words, word(v))
		}
		r.line(words...)
		values = values[n:]
	}
}

func prefixes(all []netip.Prefix) (s []string) {
	for _, p := range all {
		s = append(s, p.Masked().String())
	}
	return s
}
