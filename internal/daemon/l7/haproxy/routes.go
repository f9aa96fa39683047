// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"imbang/internal/daemon/l7"
)

// routes are a listener's, with what happens to all of its requests.
func (r *render) routes(l *l7.Listener) {
	r.spellings(l)
	byNumber := routesByNumber(l)
	conditions := make([][]string, len(l.Routes))
	for i := range l.Routes {
		back := r.about("%s", routeOrigin(l, i))
		conditions[i] = r.match(i+1, &l.Routes[i].Match)
		if byNumber {
			r.lineIf(fmt.Sprintf("http-request set-var(txn.imbang_route) int(%d)", i+1), first(i), conditions[i])
		}
		back()
	}
	r.headers(l.Headers, "")
	r.securityHeaders(l)
	on := func(i int) string { return fmt.Sprintf("imbang-on-%d", i+1) }
	none := ""
	if byNumber {
		none = unrouted
		for i := range l.Routes {
			back := r.about("%s", routeOrigin(l, i))
			r.line("acl", on(i), "var(txn.imbang_route) -m int", strconv.Itoa(i+1))
			r.route(l, &l.Routes[i], on(i))
			back()
		}
	}
	switch {
	case l.Default.Redirect == nil && l.Default.Reply == nil && l.Default.Backend == "":
		r.failf("has no default: set backend, redirect or reply")
	case l.Default.Backend == "":
		r.end(l, &l.Default, none)
	}
	// HAProxy evaluates these after all rules above.
	r.line("http-after-response set-header Connection close if { nbsrv(" + NodeBackend + ") eq 0 } !{ status 101 }") // of an upgrade, Connection says so
	for i := range l.Routes {
		if t := &l.Routes[i]; t.Backend != "" {
			back := r.about("%s", routeOrigin(l, i))
			r.known(t.Backend)
			if byNumber {
				conditions[i] = []string{on(i)}
			}
			r.lineIf("use_backend "+word(t.Backend), "", conditions[i])
			back()
		}
	}
	if l.Default.Backend != "" {
		r.known(l.Default.Backend)
		r.line("default_backend", word(l.Default.Backend))
	}
}

// unrouted is true of requests that have no route.
const unrouted = "!{ var(txn.imbang_route) -m found }"

// first is true of requests that have no route yet.
func first(before int) string {
	if before == 0 {
		return ""
	}
	return unrouted
}

// anyOf is a condition that is true if one of the alternatives is, and what is before them.
func anyOf(before string, alternatives []string) string {
	all := make([]string, len(alternatives))
	for i, a := range alternatives {
		all[i] = strings.TrimSpace(before + " " + a)
	}
	return strings.Join(all, " || ")
}

// lineIf is a rule for requests for which one of the alternatives is true, and what is before them: a
// line, or one for each alternative where it would have more words than HAProxy reads.
func (r *render) lineIf(rule, before string, alternatives []string) {
	const most = 64
	if line := rule + " if " + anyOf(before, alternatives); len(strings.Fields(line)) <= most {
		r.line(line)
		return
	}
	for _, a := range alternatives {
		r.line(rule, "if", before, a)
	}
}

func routeOrigin(l *l7.Listener, i int) string {
	if n := l.Routes[i].Name; n != "" {
		return fmt.Sprintf("listener %s, route %s", l.Name, strings.Map(visible, n))
	}
	return fmt.Sprintf("listener %s, route %d", l.Name, i+1)
}

// visible keeps messages in their line.
func visible(c rune) rune {
	if c < ' ' || c == 0x7f {
		return '?'
	}
	return c
}

// routesByNumber is true unless routes only choose backends, by requests as they came. A
// default that ends requests by a rule has to come after all routes as well.
func routesByNumber(l *l7.Listener) bool {
	if len(l.Routes) == 0 {
		return false
	}
	for _, h := range l.Headers {
		if !h.Reply {
			return true
		}
	}
	for i := range l.Routes {
		t := &l.Routes[i]
		if t.Redirect != nil || t.Reply != nil || t.StripPrefix || t.AddPrefix != "" || len(t.Headers) > 0 {
			return true
		}
	}
	return l.Default.Backend == ""
}

// match renders the conditions of a route. It returns alternatives: the ACLs that have to be true.
func (r *render) match(n int, m *l7.Match) []string {
	var all []string
	acl := func(part string) string {
		name := fmt.Sprintf("imbang-r%d-%s", n, part)
		all = append(all, name)
		return name
	}
	if len(m.Hosts) > 0 {
		r.hosts(acl("host"), m.Hosts)
	}
	if len(m.Methods) > 0 {
		for _, s := range m.Methods {
			if !httpguts.ValidHeaderFieldName(s) {
				r.failf("method %q: is not a name of a method", s)
			}
		}
		r.acl(acl("method"), "method", "", m.Methods)
	}
	for i := range m.Headers {
		r.headerMatch(acl(fmt.Sprintf("header-%d", i+1)), &m.Headers[i])
	}
	if len(m.Sources) > 0 {
		r.acl(acl("source"), "src", "", prefixes(m.Sources))
	}
	others := strings.Join(all, " ")
	if !m.ComparesPaths() {
		if others == "" {
			return []string{"TRUE"}
		}
		return []string{others}
	}
	exact, begins := r.paths(m)
	var alternatives []string
	for _, form := range pathForms {
		name := fmt.Sprintf("imbang-r%d-%s", n, form.acl)
		r.acl(name, form.fetch, "-m str", exact)
		r.acl(name, form.fetch, "-m beg", begins)
		if m.PathRegex != "" {
			r.acl(name, form.fetch, "-m reg", []string{whole(m.PathRegex)})
			r.longPaths(name, form.fetch, m.PathRegex, form.condition+" "+others)
		}
		alternatives = append(alternatives, strings.TrimSpace(strings.Join([]string{form.condition, name, others}, " ")))
	}
	return alternatives
}

// hosts are compared without case, port and the dot of the root. A wildcard stands for one label or more.
func (r *render) hosts(name string, hosts []string) {
	var exact, ends []string
	for _, h := range hosts {
		r.fail(pathText("host", h))
		host, wildcard := strings.CutPrefix(strings.ToLower(h), "*.")
		switch {
		case host == "" || strings.Contains(host, "*"):
			r.failf("host %q: name a host, or *.DOMAIN", h)
		case wildcard:
			ends = append(ends, "."+host)
		default:
			exact = append(exact, host)
		}
	}
	const fetch = "req.fhdr(Host),host_only,rtrim(.)"
	r.acl(name, fetch, "-m str", exact)
	r.acl(name, fetch, "-m end", ends)
}

// paths are those of a match, and what paths of its prefixes begin with; all are alternatives.
func (r *render) paths(m *l7.Match) (exact, begins []string) {
	for _, p := range m.Paths {
		exact = append(exact, r.normal("path", p))
	}
	for _, p := range m.PathPrefixes {
		p = strings.TrimRight(r.normal("path prefix", p), "/")
		if p != "" {
			exact = append(exact, p)
		}
		begins = append(begins, p+"/")
	}
	if m.PathRegex != "" {
		r.fail(pattern(m.PathRegex))
	}
	return exact, begins
}

// longPaths refuses what a regular expression may not decide on, which would be no match, where all
// else of the route matches.
func (r *render) longPaths(name, fetch, expression, others string) {
	words := []string{"http-request return status 414 if {", fetch + ",length gt", strconv.Itoa(l7.LongestMatch(expression)), "}", others}
	if re, err := regexp.Compile(expression); err == nil { // else it is refused
		if prefix, _ := re.LiteralPrefix(); prefix != "" {
			r.acl(name+"-begins", fetch, "-m beg", []string{prefix})
			words = append(words, name+"-begins")
		}
	}
	r.line(words...)
}

func absolute(what, p string) error {
	if !strings.HasPrefix(p, "/") {
		return fmt.Errorf("%s %q: begin it with /", what, p)
	}
	return pathText(what, p)
}

// headerMatch compares with each value of a list, and with each line of the header, since
// some headers (User-Agent, dates) have commas within one value.
func (r *render) headerMatch(name string, h *l7.HeaderMatch) {
	if _, err := headerName(h.Name); err != nil {
		r.fail(err)
		return
	}
	line, item := word("req.fhdr("+argument(h.Name)+")"), word("req.hdr("+argument(h.Name)+")")
	flags, value := "-m str", h.Value
	switch {
	case h.Value != "" && h.Regex != "":
		r.failf("header %s has both a value and a regular expression: remove one", h.Name)
		return
	case h.Value != "":
		r.fail(printable("header's value", h.Value))
	case h.Regex != "":
		r.fail(pattern(h.Regex))
		flags, value = "-m reg", whole(h.Regex)
	default:
		r.line("acl", name, line, "-m found")
		return
	}
	r.acl(name, line, flags, []string{value})
	r.acl(name, item, flags, []string{value})
}

// headers are changes to all requests and replies, or to those with the condition.
func (r *render) headers(all []l7.HeaderChange, condition string) {
	if condition != "" {
		condition = "if " + condition
	}
	for _, h := range all {
		name, err := headerName(h.Name)
		r.fail(err)
		r.fail(printable("header's value", h.Value))
		rule := "http-request"
		if h.Reply {
			rule = "http-after-response" // those of HAProxy too: redirects, errors
		}
		switch {
		case h.Value == "" && h.Add:
			r.failf("header %s: a value that is added cannot be empty", h.Name)
		case h.Value == "":
			r.line(rule, "del-header", name, condition)
		case h.Add:
			r.line(rule, "add-header", name, word(format(h.Value)), condition)
		default:
			r.line(rule, "set-header", name, word(format(h.Value)), condition)
		}
	}
}

// route is what a route does, if its condition is true.
func (r *render) route(l *l7.Listener, t *l7.Route, on string) {
	r.headers(t.Headers, on)
	if t.StripPrefix {
		if len(t.Match.PathPrefixes) == 0 {
			r.failf("strip_prefix requires match.path_prefixes: add them, or remove strip_prefix")
		}
		var all []string
		for _, p := range t.Match.PathPrefixes {
			all = append(all, spelled(strings.TrimRight(r.normal("path prefix", p), "/")))
		}
		// Whole segments, with all slashes behind the prefix: a path that begins with two is a host for those that follow
		// a redirect to it.
		strip := `^(?:` + strings.Join(all, "|") + `)(?:` + anySlash + `+|$)(.*)`
		r.line("http-request replace-path", word(strip), word(`/\1`), "if", on)
	}
	if t.AddPrefix != "" {
		r.fail(absolute("add_prefix", t.AddPrefix))
		if _, err := url.PathUnescape(t.AddPrefix); err != nil || strings.ContainsAny(t.AddPrefix, "?#") {
			r.failf("add_prefix %q: write %%, ? and # as %%25, %%3F and %%23", t.AddPrefix)
		}
		r.line("http-request set-path", word(format(strings.TrimRight(t.AddPrefix, "/"))+"%[path]"), "if", on)
	}
	if t.Backend == "" {
		r.end(l, &t.Target, on)
	}
}

func (r *render) known(backend string) {
	if r.backends[backend] == nil {
		r.failf("backend %q does not exist: add it to backends", backend)
	}
}

// end ends requests here.
func (r *render) end(l *l7.Listener, t *l7.Target, condition string) {
	if condition != "" {
		condition = "if " + condition
	}
	switch {
	case t.Redirect != nil:
		r.redirect(l, t.Redirect, condition)
	case t.Reply != nil:
		r.reply(t.Reply, condition)
	default:
		r.failf("leads nowhere: set backend, redirect or reply")
	}
}

// redirect composes the new location.
func (r *render) redirect(l *l7.Listener, d *l7.Redirect, condition string) {
	switch d.Status {
	case 301, 302, 303, 307, 308:
	default:
		r.failf("redirect: status %d: use 301, 302, 303, 307 or 308", d.Status)
	}
	r.fail(pathText("location", d.Location))
	r.fail(pathText("host", d.Host))
	r.fail(pathText("prefix", d.Prefix))
	location := format(d.Location)
	if d.Location == "" {
		scheme := "http"
		if l.TLS != nil {
			scheme = "https"
		}
		host := format(d.Host)
		switch {
		case d.Scheme != "" && d.Scheme != "http" && d.Scheme != "https":
			r.failf("redirect: scheme %q: use http or https", d.Scheme)
		case d.Scheme != "" && d.Scheme != scheme && host == "":
			// The other scheme has another port.
			scheme, host = d.Scheme, "%[req.hdr(Host),host_only]"
		case d.Scheme != "":
			scheme = d.Scheme
		}
		if host == "" && d.Scheme != "" {
			host = "%[req.hdr(Host)]"
		}
		if host != "" {
			location = scheme + "://" + host
		}
		location += format(strings.TrimRight(d.Prefix, "/")) + "%[pathq]"
		if host == "" && d.Prefix == "" {
			r.failf("redirect leads to the same place: set location, scheme, host or prefix")
		}
	}
	r.line("http-request redirect location", word(location), "code", strconv.Itoa(d.Status), condition)
}

// reply is a fixed one.
func (r *render) reply(p *l7.Reply, condition string) {
	if p.Status < 200 || p.Status > 599 {
		r.failf("reply: status %d: use 200 to 599", p.Status)
	}
	words := []string{"http-request return status", strconv.Itoa(p.Status)}
	kind := p.ContentType
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	r.fail(printable("content type", kind))
	r.fail(text("body", p.Body))
	bodiless := p.Status == 204 || p.Status == 304
	switch {
	case p.Body != "" && p.File != "":
		r.failf("reply has both a body and a file: remove one")
	case bodiless && (p.Body != "" || p.File != ""):
		r.failf("reply: status %d has no body: remove it", p.Status)
	case p.File != "":
		r.fail(printable("file", p.File))
		words = append(words, "content-type", word(kind), "file", word(p.File))
	case p.Body != "":
		if most := r.bufferSize() - 2*rewrite; len(p.Body) > most {
			r.failf("reply: the body has %d bytes, HAProxy allows %d: shorten it, or serve it from a backend", len(p.Body), most)
		}
		words = append(words, "content-type", word(kind), "string", word(p.Body))
	}
	r.line(append(words, condition)...)
}
