// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"time"

	"imbang/internal/daemon/l7"
)

// Defaults of timeouts.
var (
	Defaults       = l7.Timeouts{Request: 10 * time.Second, KeepAlive: time.Minute, Client: time.Minute}
	ServerDefaults = l7.ServerTimeouts{Connect: 5 * time.Second, Server: time.Minute, Queue: 10 * time.Second, Tunnel: time.Hour}
)

// duration renders a time; a fault is noted.
func (r *render) duration(d time.Duration) string {
	s, err := duration(d)
	r.fail(err)
	return s
}

// clientTimeouts are those of a frontend.
func (r *render) clientTimeouts(t *l7.Timeouts) {
	for _, s := range []struct {
		key string
		is  time.Duration
	}{{"http-request", t.Request}, {"http-keep-alive", t.KeepAlive}, {"client", t.Client}} {
		if s.is != 0 {
			r.line("timeout", s.key, r.duration(s.is))
		}
	}
}

// serverTimeouts are those of a backend.
func (r *render) serverTimeouts(b *l7.Backend) {
	t, def := &b.Timeouts, &ServerDefaults
	for _, s := range []struct {
		key     string
		is, def time.Duration
	}{{"connect", t.Connect, def.Connect}, {"server", t.Server, def.Server}, {"queue", t.Queue, def.Queue}, {"tunnel", t.Tunnel, def.Tunnel}} {
		if s.is != 0 && s.is != s.def {
			r.line("timeout", s.key, r.duration(s.is))
		}
	}
}
