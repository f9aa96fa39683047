// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"slices"
	"time"

	"imbang/internal/daemon/l7"
)

// Defaults of timeouts. Body is not there: HAProxy has one time for both directions of a
// client's connection, Client.
var Defaults = l7.Timeouts{
	Request:   10 * time.Second,
	KeepAlive: 60 * time.Second,
	Client:    60 * time.Second,
	Connect:   5 * time.Second,
	Server:    60 * time.Second,
	Queue:     10 * time.Second,
	Tunnel:    time.Hour,
}

// duration renders a time; a fault is noted.
func (r *render) duration(d time.Duration) string {
	s, err := duration(d)
	r.fail(err)
	return s
}

// clientTimeouts are those of a frontend.
func (r *render) clientTimeouts(t *l7.Timeouts) {
	client := t.Client
	if t.Body != 0 {
		if client != 0 && client != t.Body {
			r.cannot("have a timeout of its own for a request's body", "set timeouts.body and timeouts.client to the same time, or one of them")
		}
		client = t.Body
	}
	for _, s := range []struct {
		key string
		is  time.Duration
	}{{"http-request", t.Request}, {"http-keep-alive", t.KeepAlive}, {"client", client}} {
		if s.is != 0 {
			r.line("timeout", s.key, r.duration(s.is))
		}
	}
}

// serverTimeouts are those of a backend, else those of the listeners that use it. A frontend
// has none of them, so the listeners have to agree.
func (r *render) serverTimeouts(b *l7.Backend) {
	for _, s := range []struct {
		key string
		of  func(*l7.Timeouts) time.Duration
		def time.Duration
	}{
		{"connect", func(t *l7.Timeouts) time.Duration { return t.Connect }, Defaults.Connect},
		{"server", func(t *l7.Timeouts) time.Duration { return t.Server }, Defaults.Server},
		{"queue", func(t *l7.Timeouts) time.Duration { return t.Queue }, Defaults.Queue},
		{"tunnel", func(t *l7.Timeouts) time.Duration { return t.Tunnel }, Defaults.Tunnel},
	} {
		is := s.of(&b.Timeouts)
		from := ""
		for _, l := range r.users[b.Name] {
			if s.of(&b.Timeouts) != 0 {
				break
			}
			here := s.of(&l.Timeouts)
			if here == 0 {
				here = s.def
			}
			if from != "" && here != is {
				r.failf("listeners %s and %s use it with different timeouts.%s (%v, %v): set timeouts.%s of the backend", from, l.Name, s.key, is, here, s.key)
				break
			}
			is, from = here, l.Name
		}
		if is != 0 && is != s.def {
			r.line("timeout", s.key, r.duration(is))
		}
	}
}

// backendsOf are the backends that a listener sends requests to, each once, in the order of
// its routes.
func backendsOf(l *l7.Listener) (names []string) {
	add := func(t *l7.Target) {
		if t.Backend != "" && !slices.Contains(names, t.Backend) {
			names = append(names, t.Backend)
		}
	}
	for i := range l.Routes {
		add(&l.Routes[i].Target)
	}
	add(&l.Default)
	return names
}
