// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

func snapshot() *Snapshot {
	web := model.ServiceStatus{
		Service: model.Service{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))},
		Total:   model.Stats{Conns: 7, InPkts: 70},
		Servers: []model.ServerStatus{{
			Server: model.Server{Addr: netip.MustParseAddr("172.16.0.2"), Port: 80, Weight: 4}, Health: 50 * model.Percent,
			Active: 3, Inactive: 2, Total: model.Stats{Conns: 7, InBytes: 900},
		}},
	}
	mark := model.ServiceStatus{
		Service: model.Service{Key: model.MarkKey(3, model.IPv4)}, Total: model.Stats{Conns: 1},
		Servers: []model.ServerStatus{{Server: model.Server{Addr: netip.MustParseAddr("2001:db8::2"), Weight: 1}}},
	}
	status := &api.Status{
		Since: time.Unix(100, 0), Reloaded: time.Unix(200, 0), ReloadError: "wrong", Drift: []string{"a"}, Alarms: []api.Alarm{{Name: "device"}},
		Services: []api.Service{{Name: "web", Up: true, Servers: []api.Server{{
			Name: "a", State: "down", Drain: &api.Order{}, Checks: []api.Check{{Name: "http", State: "down", Runs: 5, Fails: 3}},
		}}}},
	}
	status.Synchronization = []api.Synchronization{
		{Role: "master", State: "running", Messages: 9, Entries: 90, Bytes: 3240, Last: time.Unix(300, 0), Lost: 2, Dropped: []api.SyncDropped{{Reason: "send_error", Of: "messages", Count: 1}}},
		{Role: "backup", State: "failed", Unbound: 4, Bound: 5, Dropped: []api.SyncDropped{{Reason: "syncid", Of: "messages"}}},
	}
	return &Snapshot{Daemon: status, Services: []model.ServiceStatus{web, mark}, Director: director.Status{Connections: 5, Attachments: []director.Attachment{{Role: "client", Device: "eth0", Hook: "tcx"}}}}
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(func() (*Snapshot, error) { return snapshot(), nil }, true))
	want := `
# HELP imbang_server_up 1 if all checks of the server succeed, or it has none.
# TYPE imbang_server_up gauge
imbang_server_up{server="a",service="web"} 0
# HELP imbang_server_weight_effective Weight that the scheduler goes by.
# TYPE imbang_server_weight_effective gauge
imbang_server_weight_effective{server_address="172.16.0.2:80",service_key="10.20.0.1:80/tcp"} 2
imbang_server_weight_effective{server_address="[2001:db8::2]:0",service_key="fwmark 3"} 1
# HELP imbang_check_failures_total Checks that failed.
# TYPE imbang_check_failures_total counter
imbang_check_failures_total{check="http",server="a",service="web"} 3
# HELP imbang_config_last_reload_successful 1 if the last reload was applied, 0 if it was refused.
# TYPE imbang_config_last_reload_successful gauge
imbang_config_last_reload_successful 0
# HELP imbang_sync_up 1 if the role of connection synchronization runs.
# TYPE imbang_sync_up gauge
imbang_sync_up{role="backup"} 0
imbang_sync_up{role="master"} 1
# HELP imbang_sync_entries_total Connections and templates in these messages.
# TYPE imbang_sync_entries_total counter
imbang_sync_entries_total{role="backup"} 0
imbang_sync_entries_total{role="master"} 90
# HELP imbang_sync_last_message_timestamp_seconds When the last message was sent or used, in seconds since 1970; 0 if none was.
# TYPE imbang_sync_last_message_timestamp_seconds gauge
imbang_sync_last_message_timestamp_seconds{role="backup"} 0
imbang_sync_last_message_timestamp_seconds{role="master"} 300
# HELP imbang_sync_lost_entries_total Entries that the director's ring had no room for.
# TYPE imbang_sync_lost_entries_total counter
imbang_sync_lost_entries_total{role="master"} 2
# HELP imbang_sync_unbound_entries Received entries that wait for their service or server.
# TYPE imbang_sync_unbound_entries gauge
imbang_sync_unbound_entries{role="backup"} 4
# HELP imbang_sync_dropped_total Messages or entries that were dropped, by reason.
# TYPE imbang_sync_dropped_total counter
imbang_sync_dropped_total{of="messages",reason="syncid",role="backup"} 0
imbang_sync_dropped_total{of="messages",reason="send_error",role="master"} 1
# HELP node_ipvs_connections_total The total number of connections made.
# TYPE node_ipvs_connections_total counter
node_ipvs_connections_total 8
# HELP node_ipvs_backend_connections_active The current active connections by local and remote address.
# TYPE node_ipvs_backend_connections_active gauge
node_ipvs_backend_connections_active{local_address="",local_mark="00000003",local_port="0",proto="FWM",remote_address="2001:db8::2",remote_port="0"} 0
node_ipvs_backend_connections_active{local_address="10.20.0.1",local_mark="",local_port="80",proto="TCP",remote_address="172.16.0.2",remote_port="80"} 3
# HELP node_ipvs_backend_weight The current backend weight by local and remote address.
# TYPE node_ipvs_backend_weight gauge
node_ipvs_backend_weight{local_address="",local_mark="00000003",local_port="0",proto="FWM",remote_address="2001:db8::2",remote_port="0"} 1
node_ipvs_backend_weight{local_address="10.20.0.1",local_mark="",local_port="80",proto="TCP",remote_address="172.16.0.2",remote_port="80"} 2
`
	names := []string{"imbang_server_up", "imbang_server_weight_effective", "imbang_check_failures_total", "imbang_config_last_reload_successful",
		"imbang_sync_up", "imbang_sync_entries_total", "imbang_sync_last_message_timestamp_seconds", "imbang_sync_lost_entries_total", "imbang_sync_unbound_entries", "imbang_sync_dropped_total",
		"node_ipvs_connections_total", "node_ipvs_backend_connections_active", "node_ipvs_backend_weight"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if !strings.HasPrefix(m.GetName(), "imbang_") && !strings.HasPrefix(m.GetName(), "node_ipvs_") {
			t.Errorf("metric %s", m.GetName())
		}
	}
}

func TestScrapeFails(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(func() (*Snapshot, error) { return nil, errors.New("no director") }, false))
	if _, err := r.Gather(); err == nil || !strings.Contains(err.Error(), "no director") {
		t.Error(err)
	}
}
