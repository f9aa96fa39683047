// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7"
)

// Why implements api.Daemon.
func (d *Daemon) Why(q api.WhyRequest) (reply *api.WhyReply, err error) {
	err = d.do(func() error {
		reply, err = d.why(q)
		return err
	})
	return reply, err
}

func (d *Daemon) why(q api.WhyRequest) (*api.WhyReply, error) {
	c := d.core.Config.Layer7
	if c == nil {
		return nil, api.Conflict(errors.New("the configuration has no listeners"))
	}
	request, u, err := requestOf(q)
	if err != nil {
		return nil, api.Conflict(err)
	}
	l, at, err := listenerOf(c.Listeners, u, q.Address)
	if err != nil {
		return nil, api.Unknown(err)
	}
	reply := &api.WhyReply{Listener: l.Name, Address: at.String(), Routes: []api.WhyStep{}}
	if l.Monitor != "" && request.Path == l.Monitor && u.RawQuery == "" && !u.ForceQuery {
		reply.Status, reply.Note = d.monitored(l)
		if len(l.Raw) > 0 { // monitor fail
			reply.Note += "; " + rawMayDiffer
		}
		return reply, nil
	}
	note := func(text string) {
		if reply.Note != "" {
			reply.Note += "; "
		}
		reply.Note += text
	}
	for _, text := range beyondRoutes(l) {
		note(text)
	}
	request = l.Received(request)
	if status, err := l.Refuses(request); err != nil {
		reply.Status = status
		note("refused before routes are tried: " + err.Error())
		return reply, nil
	}
	target, route, steps := l.Choose(request)
	for _, s := range steps {
		reply.Routes = append(reply.Routes, api.WhyStep{Route: s.Route, Because: s.Because})
	}
	if route != nil {
		reply.Route = steps[len(steps)-1].Route
	}
	if !request.Client.IsValid() && slices.ContainsFunc(l.Routes, func(r l7.Route) bool { return len(r.Match.Sources) > 0 }) {
		note("routes of the listener depend on the client's address, which was not given")
	}
	switch {
	case target.Redirect != nil:
		reply.Status, reply.Redirect = target.Redirect.Status, redirected(target.Redirect, u, request.Host)
	case target.Reply != nil:
		reply.Status = target.Reply.Status
	default:
		d.whyBackend(reply, target.Backend, note)
	}
	return reply, nil
}

// monitored is what a listener's monitor replies.
func (d *Daemon) monitored(l *l7.Listener) (status int, why string) {
	var usable []string
	for id, state := range d.layer7.wanted.States {
		if usableNow(state) && slices.Contains(l.BackendNames(), id.Backend) && !slices.Contains(usable, id.Backend) {
			usable = append(usable, id.Backend)
		}
	}
	status, why = http.StatusOK, "it is the listener's monitor, which HAProxy answers itself"
	switch {
	case d.layer7.order.Drain != nil:
		return http.StatusServiceUnavailable, why + ": the node is drained"
	case len(usable) < l.MonitorBackends:
		status = http.StatusServiceUnavailable
	}
	return status, fmt.Sprintf("%s: %d of %d backends have a server that gets requests, and %d are required", why, len(usable), len(l.BackendNames()), l.MonitorBackends)
}

// usableNow reports whether a server gets new requests.
func usableNow(s l7.State) bool { return s.Health == l7.Up && s.Weight > 0 }

const rawMayDiffer = "the listener has raw lines, which may do otherwise"

// beyondRoutes is what may refuse or lead a request that routes do not show.
func beyondRoutes(l *l7.Listener) (list []string) {
	if len(l.Raw) > 0 {
		list = append(list, rawMayDiffer)
	}
	if t := l.TLS; t != nil && t.ClientCA != "" {
		list = append(list, "clients need a certificate (client_ca)")
	}
	if t := l.TLS; t != nil && t.StrictSNI {
		list = append(list, "clients need a server name that a certificate has (strict_sni)")
	}
	if m := l.Limits; m.RequestsPerIP > 0 || m.ClientConnections > 0 {
		list = append(list, "clients beyond the listener's limits are refused")
	}
	return list
}

func (d *Daemon) whyBackend(reply *api.WhyReply, name string, note func(string)) {
	reply.Backend = name
	for _, v := range d.core.View() {
		if v.Backend != name {
			continue
		}
		s := d.backendStatus(v)
		reply.Balance, reply.Servers = s.Scheduler, s.Servers
	}
	for i := range d.core.Config.Layer7.Backends {
		if b := &d.core.Config.Layer7.Backends[i]; b.Name == name && b.Cookie != nil {
			reply.Balance = fmt.Sprintf("cookie %s, and %s for clients without it", b.Cookie.Name, reply.Balance)
		}
	}
	if states := d.layer7.wanted.States; !slices.ContainsFunc(reply.Servers, func(s api.Server) bool {
		return usableNow(states[l7.ServerID{Backend: name, Server: s.Name}])
	}) {
		note("no server gets new requests now: the reply is the maintenance page, or 503")
	}
}

// requestOf is the request that is asked about.
func requestOf(q api.WhyRequest) (*l7.Request, *url.URL, error) {
	u, err := url.Parse(q.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, nil, fmt.Errorf("URL %q: want one such as https://shop.example/cart", q.URL)
	}
	r := &l7.Request{Method: cmp.Or(q.Method, http.MethodGet), Host: u.Host, Path: cmp.Or(u.EscapedPath(), "/"), Header: http.Header{}}
	if q.Client != "" {
		if r.Client, err = netip.ParseAddr(q.Client); err != nil {
			return nil, nil, fmt.Errorf("client %q: want an address, such as 10.1.2.3", q.Client)
		}
	}
	for _, text := range q.Headers {
		name, value, found := strings.Cut(text, ":")
		if !found {
			return nil, nil, fmt.Errorf("header %q: want a name and a value, such as X-Version: 2", text)
		}
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); strings.EqualFold(name, "Host") {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return r, u, nil
}

// listenerOf is the listener that a client of a URL comes to. Names are not resolved: without an
// address it is the only one of the URL's port and scheme.
func listenerOf(all []l7.Listener, u *url.URL, address string) (*l7.Listener, netip.AddrPort, error) {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if _, err := netip.ParseAddr(u.Hostname()); err == nil && address == "" {
		address = u.Hostname()
	}
	if _, err := netip.ParseAddr(address); err == nil {
		address = netip.AddrPortFrom(netip.MustParseAddr(address), 0).String()
	}
	var at netip.AddrPort
	if address != "" {
		var err error
		if at, err = netip.ParseAddrPort(address); err != nil {
			return nil, at, fmt.Errorf("address %q: want one such as 10.20.0.1:443", address)
		}
		if at.Port() != 0 {
			port = fmt.Sprint(at.Port())
		}
	}
	var found []*l7.Listener
	var where netip.AddrPort
	for i := range all {
		l := &all[i]
		for _, b := range l.Bind {
			same := !at.IsValid() || b.Addr() == at.Addr() || b.Addr().IsUnspecified() && b.Addr().Is4() == at.Addr().Is4()
			if fmt.Sprint(b.Port()) == port && same && (l.TLS != nil) == (u.Scheme == "https") && !slices.Contains(found, l) {
				found, where = append(found, l), b
			}
		}
	}
	switch {
	case len(found) == 0:
		return nil, at, fmt.Errorf("no listener accepts %s at port %s%s", u.Scheme, port, map[bool]string{true: " of " + at.Addr().String()}[at.IsValid()])
	case len(found) > 1:
		var names []string
		for _, l := range found {
			names = append(names, l.Name)
		}
		return nil, at, fmt.Errorf("the listeners %s accept %s at port %s: say by --address which one", strings.Join(names, ", "), u.Scheme, port)
	}
	return found[0], where, nil
}

// redirected is where a redirect leads for a request of a host.
func redirected(r *l7.Redirect, u *url.URL, host string) string {
	if r.Location != "" {
		return r.Location
	}
	scheme := cmp.Or(r.Scheme, u.Scheme)
	if scheme != u.Scheme {
		host = l7.HostAlone(host) // another scheme has another port
	}
	return scheme + "://" + cmp.Or(r.Host, host) + r.Prefix + u.RequestURI()
}
