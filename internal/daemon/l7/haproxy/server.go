// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
)

// state is what a server is to be.
func (r *render) state(b *l7.Backend, s *l7.Server) l7.State {
	if state, known := r.states[l7.ServerID{Backend: b.Name, Server: s.Name}]; known {
		return state
	}
	return l7.State{Health: l7.Up, Weight: s.Weight}
}

// checked is true of a server whose own check will say when it is up again.
func (r *render) checked(b *l7.Backend, state l7.State) bool {
	return r.options.Fallback && b.Check != nil && state.Health == l7.Down
}

func (r *render) server(b *l7.Backend, s *l7.Server) {
	defer r.about("backend %s, server %s", b.Name, strings.Map(visible, s.Name))()
	if err := checkName(s.Name); err != nil {
		r.fail(err)
		return
	}
	state := r.state(b, s)
	line := []string{"server", s.Name, s.Address.String()}
	for _, one := range r.serverWords(b, s, state.Weight) {
		line = append(line, word(one))
	}
	if state.Health != l7.Up && !r.checked(b, state) {
		line = append(line, "disabled")
	}
	r.line(line...)
}

// serverWords are those of a server's line after its address, not quoted.
func (r *render) serverWords(b *l7.Backend, s *l7.Server, weight int) []string {
	if weight < 0 || weight > 256 {
		r.failf("weight %d: use 0 to 256", weight)
	}
	words := []string{"id", strconv.Itoa(r.numbers.of(b).ids[s.Name]), "weight", strconv.Itoa(weight)}
	if s.MaxConnections > 0 {
		words = append(words, "maxconn", strconv.Itoa(s.MaxConnections))
	}
	if s.Backup {
		words = append(words, "backup")
	}
	if b.Cookie != nil {
		words = append(words, "cookie", cookieValue(s, r.numbers.of(b).names))
	}
	words = append(words, r.connection(b)...)
	if c := b.Check; c != nil {
		words = append(words, "check", "inter", r.duration(orDefault(c.Interval, 2*time.Second)),
			"rise", strconv.Itoa(orDefault(c.Rise, 2)), "fall", strconv.Itoa(orDefault(c.Fall, 3)))
	}
	if c := b.Check; c != nil && c.Port != 0 {
		words = append(words, "port", strconv.Itoa(int(c.Port)))
		if b.SendProxy != 0 && c.Port == s.Address.Port() {
			words = append(words, "check-send-proxy") // it has none of its own where a port is given
		}
	}
	if c := b.Check; c != nil && c.TLS != (b.TLS != nil) {
		words = append(words, map[bool][]string{true: {"check-ssl", "verify", "none"}, false: {"no-check-ssl"}}[c.TLS]...)
	}
	return words
}

// Arguments are the words of a server's line after its address, for runtime.Changes.
func Arguments(v Version) func(*l7.Backend, *l7.Server) []string {
	known := numbers{}
	return func(b *l7.Backend, s *l7.Server) []string {
		r := &render{writer: writer{version: v}, numbers: known}
		return r.serverWords(b, s, s.Weight)
	}
}

func orDefault[T comparable](is, def T) T {
	var zero T
	if is == zero {
		return def
	}
	return is
}

// connection is how servers of a backend are spoken to.
func (r *render) connection(b *l7.Backend) (words []string) {
	switch b.Protocol {
	case "", l7.HTTP1, l7.HTTP2:
	default:
		r.failf("protocol %q: use http/1.1 or h2", string(b.Protocol))
	}
	if t := b.TLS; t != nil {
		words = append(words, "ssl")
		if b.Protocol == l7.HTTP2 {
			words = append(words, "alpn", "h2")
		}
		words = append(words, r.serverTLS(t)...)
	} else if b.Protocol == l7.HTTP2 {
		words = append(words, "proto", "h2")
	}
	switch b.SendProxy {
	case 0:
	case 1:
		words = append(words, "send-proxy")
	case 2:
		words = append(words, "send-proxy-v2")
	default:
		r.failf("send_proxy %d: use 1 or 2", b.SendProxy)
	}
	return words
}

func (r *render) serverTLS(t *l7.ServerTLS) (words []string) {
	// The name that is sent is also the one that is verified.
	sni := "req.hdr(host),host_only"
	if t.Name != "" {
		r.fail(checkName(t.Name))
		sni = fmt.Sprintf("str(%s)", t.Name)
	}
	words = append(words, "sni", sni)
	if t.CA == "" {
		words = append(words, "verify", "none")
	} else {
		r.fail(file("CA", t.CA))
		words = append(words, "verify", "required", "ca-file", t.CA)
	}
	if t.Client != "" {
		r.fail(file("certificate", t.Client))
		words = append(words, "crt", t.Client)
	}
	return words
}
