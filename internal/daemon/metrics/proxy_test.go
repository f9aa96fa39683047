// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"imbang/internal/daemon/api"
)

// A node of layer 7 alone has nothing of a director.
func TestProxyMetrics(t *testing.T) {
	s := &Snapshot{Daemon: &api.Status{NoDirector: true, Alarms: []api.Alarm{{Name: "certificate"}}, Proxy: &api.Proxy{
		State: "running", Reloads: 2, Starts: 3, Drain: &api.Order{},
		Listeners:    []api.Listener{{Name: "shop", Connections: 3, Requests: 9}},
		Backends:     []api.Service{{Name: "backend web", Servers: []api.Server{{Name: "web1", Active: 4}}}},
		Certificates: []api.Certificate{{File: "/tls/shop.pem", Expires: time.Unix(1000, 0), Error: "damaged"}, {File: "/tls/none.pem"}},
	}}}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(func() (*Snapshot, error) { return s, nil }, false))
	const want = `
# HELP imbang_alarm 1 for each alarm that is raised.
# TYPE imbang_alarm gauge
imbang_alarm{alarm="certificate"} 1
# HELP imbang_backend_sessions Sessions of the server of a backend.
# TYPE imbang_backend_sessions gauge
imbang_backend_sessions{server="web1",service="backend web"} 4
# HELP imbang_certificate_expiry_timestamp_seconds When the certificate that HAProxy uses of a file expires, since 1970.
# TYPE imbang_certificate_expiry_timestamp_seconds gauge
imbang_certificate_expiry_timestamp_seconds{file="/tls/shop.pem"} 1000
# HELP imbang_director_required 0 if the configuration is of layer 7 alone, and no director is loaded for it.
# TYPE imbang_director_required gauge
imbang_director_required 0
# HELP imbang_listener_requests_total Requests since HAProxy was started or reloaded.
# TYPE imbang_listener_requests_total counter
imbang_listener_requests_total{listener="shop"} 9
# HELP imbang_proxy_draining 1 while this node gets no new clients.
# TYPE imbang_proxy_draining gauge
imbang_proxy_draining 1
# HELP imbang_proxy_starts_total Starts of HAProxy since its supervisor started.
# TYPE imbang_proxy_starts_total counter
imbang_proxy_starts_total 3
# HELP imbang_proxy_up 1 if HAProxy runs and does what the configuration and the checks say.
# TYPE imbang_proxy_up gauge
imbang_proxy_up 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "imbang_alarm", "imbang_backend_sessions", "imbang_certificate_expiry_timestamp_seconds",
		"imbang_director_required", "imbang_listener_requests_total", "imbang_proxy_draining", "imbang_proxy_starts_total", "imbang_proxy_up", "imbang_attached", "imbang_connections_capacity"); err != nil {
		t.Error(err)
	}
	s.Daemon.Proxy.Error = "HAProxy does not run"
	if n, err := testutil.GatherAndCount(r, "imbang_proxy_up"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader("# HELP imbang_proxy_up 1 if HAProxy runs and does what the configuration and the checks say.\n# TYPE imbang_proxy_up gauge\nimbang_proxy_up 0\n"), "imbang_proxy_up"); err != nil {
		t.Error(err)
	}
}
