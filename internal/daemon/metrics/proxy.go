// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"imbang/internal/daemon/api"
)

// Of layer 7.
var (
	proxyUp          = metric{"imbang_proxy_up", "1 if HAProxy runs and does what the configuration and the checks say.", prometheus.GaugeValue, nil}
	proxyDraining    = metric{"imbang_proxy_draining", "1 while this node gets no new clients.", prometheus.GaugeValue, nil}
	proxyReloads     = metric{"imbang_proxy_reloads_total", "Reloads of HAProxy since the daemon started.", prometheus.CounterValue, nil}
	proxyStarts      = metric{"imbang_proxy_starts_total", "Starts of HAProxy since its supervisor started.", prometheus.CounterValue, nil}
	listenerConns    = metric{"imbang_listener_connections", "Connections of clients.", prometheus.GaugeValue, []string{"listener"}}
	listenerRequests = metric{"imbang_listener_requests_total", "Requests since HAProxy was started or reloaded.", prometheus.CounterValue, []string{"listener"}}
	certificateEnd   = metric{"imbang_certificate_expiry_timestamp_seconds", "When the certificate that HAProxy uses of a file expires, since 1970.", prometheus.GaugeValue, []string{"file"}}
	backendSessions  = metric{"imbang_backend_sessions", "Sessions of the server of a backend.", prometheus.GaugeValue, server}
)

func (w writer) proxy(p *api.Proxy) {
	w.put(proxyUp, one(p.Error == "" && (p.State == "running" || p.State == "reloading")))
	w.put(proxyDraining, one(p.Drain != nil))
	w.put(proxyReloads, float64(p.Reloads))
	w.put(proxyStarts, float64(p.Starts))
	for _, l := range p.Listeners {
		w.put(listenerConns, float64(l.Connections), l.Name)
		w.put(listenerRequests, float64(l.Requests), l.Name)
	}
	for _, c := range p.Certificates {
		if !c.Expires.IsZero() {
			w.put(certificateEnd, float64(c.Expires.Unix()), c.File)
		}
	}
	for _, b := range p.Backends {
		for _, s := range b.Servers {
			w.put(backendSessions, float64(s.Active), b.Name, s.Name)
		}
	}
}
