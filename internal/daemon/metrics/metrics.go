// SPDX-License-Identifier: Apache-2.0

// Package metrics makes metrics for Prometheus of what a daemon and its director know.
// It reads nothing itself: each scrape asks for a snapshot.
package metrics

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/model"
)

// Snapshot is what a scrape shows.
type Snapshot struct {
	Daemon   *api.Status
	Services []model.ServiceStatus // all of the director's, named by the configuration or not
	Director director.Status
	VRRP     *VRRP // nil: there is no process imbang vrrp
}

// Collector makes metrics of snapshots.
type Collector struct {
	snapshot     func() (*Snapshot, error)
	nodeExporter bool
}

// New makes a collector. With nodeExporter there are also the metrics that
// node_exporter has of the kernel's IPVS.
func New(snapshot func() (*Snapshot, error), nodeExporter bool) *Collector {
	return &Collector{snapshot, nodeExporter}
}

// metric describes a family of metrics. Its labels are given with each value.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}

var (
	service  = []string{"service"}
	server   = []string{"service", "server"}
	checkOf  = []string{"service", "server", "check"}
	table    = []string{"service_key", "server_address"}
	syncRole = []string{"role"}

	daemonStart      = metric{"imbang_daemon_start_time_seconds", "When the daemon started, in seconds since 1970.", prometheus.GaugeValue, nil}
	directorRequired = metric{"imbang_director_required", "0 if the configuration is of layer 7 alone, and no director is loaded for it.", prometheus.GaugeValue, nil}
	reloadOK         = metric{"imbang_config_last_reload_successful", "1 if the last reload was applied, 0 if it was refused.", prometheus.GaugeValue, nil}
	reloadTime       = metric{"imbang_config_last_reload_success_timestamp_seconds", "When a configuration was applied last, in seconds since 1970.", prometheus.GaugeValue, nil}
	alarm            = metric{"imbang_alarm", "1 for each alarm that is raised.", prometheus.GaugeValue, []string{"alarm"}}
	drift            = metric{"imbang_drift_changes", "Changes that a reload would make because others edited the table.", prometheus.GaugeValue, nil}
	serviceUp        = metric{"imbang_service_up", "1 if the service has its quorum and is in the table.", prometheus.GaugeValue, service}
	serviceSorry     = metric{"imbang_service_sorry", "1 if the sorry server gets the clients.", prometheus.GaugeValue, service}
	serverUp         = metric{"imbang_server_up", "1 if all checks of the server succeed, or it has none.", prometheus.GaugeValue, server}
	serverOrder      = metric{"imbang_server_order", "1 for each order that an operator gave for the server: drain, maintenance or weight.", prometheus.GaugeValue, []string{"service", "server", "order"}}
	checkUp          = metric{"imbang_check_up", "1 if the check holds the server for up.", prometheus.GaugeValue, checkOf}
	checkRuns        = metric{"imbang_check_runs_total", "Checks made.", prometheus.CounterValue, checkOf}
	checkFails       = metric{"imbang_check_failures_total", "Checks that failed.", prometheus.CounterValue, checkOf}
	checkDelay       = metric{"imbang_check_start_delay_seconds", "By how much checks started late, since the daemon started.", prometheus.GaugeValue, []string{"percentile"}}
	weightAdmin      = metric{"imbang_server_weight_administrative", "Weight that the user set.", prometheus.GaugeValue, table}
	weightEff        = metric{"imbang_server_weight_effective", "Weight that the scheduler goes by.", prometheus.GaugeValue, table}
	serverConns      = metric{"imbang_server_connections", "Connections of the server by state: active, inactive or persistent (templates).", prometheus.GaugeValue, []string{"service_key", "server_address", "state"}}
	serverOpened     = metric{"imbang_server_connections_opened_total", "Connections scheduled to the server.", prometheus.CounterValue, table}
	serverInPkts     = metric{"imbang_server_in_packets_total", "Packets to the server.", prometheus.CounterValue, table}
	serverOutPkts    = metric{"imbang_server_out_packets_total", "Packets from the server that came through the director.", prometheus.CounterValue, table}
	serverInBytes    = metric{"imbang_server_in_bytes_total", "IP bytes to the server.", prometheus.CounterValue, table}
	serverOutBytes   = metric{"imbang_server_out_bytes_total", "IP bytes from the server that came through the director.", prometheus.CounterValue, table}
	svcOpened        = metric{"imbang_service_connections_opened_total", "Connections of the service.", prometheus.CounterValue, []string{"service_key"}}
	connections      = metric{"imbang_connections", "Entries of the connection table, templates left out.", prometheus.GaugeValue, nil}
	capacity         = metric{"imbang_connections_capacity", "Room for connections of IPv4; one of IPv6 takes the room of two.", prometheus.GaugeValue, nil}
	tableBytes       = metric{"imbang_connection_table_bytes", "Memory of the connection table.", prometheus.GaugeValue, nil}
	sweepPass        = metric{"imbang_sweep_pass_seconds", "The last time that the sweep came by all connections took.", prometheus.GaugeValue, nil}
	sweepLongest     = metric{"imbang_sweep_callback_max_seconds", "Longest callback of the sweep so far.", prometheus.GaugeValue, nil}
	room             = metric{"imbang_connections_room_used", "Room that connections and templates take, in connections of IPv4.", prometheus.GaugeValue, nil}
	packets          = metric{"imbang_unforwarded_packets_total", "Packets that were not forwarded, by verdict and reason.", prometheus.CounterValue, []string{"verdict", "reason"}}
	attached         = metric{"imbang_attached", "1 for each program on a device.", prometheus.GaugeValue, []string{"role", "device", "hook"}}
	syncUp           = metric{"imbang_sync_up", "1 if the role of connection synchronization runs.", prometheus.GaugeValue, syncRole}
	syncMessages     = metric{"imbang_sync_messages_total", "Messages that a master sent, or that a backup received and used.", prometheus.CounterValue, syncRole}
	syncEntries      = metric{"imbang_sync_entries_total", "Connections and templates in these messages.", prometheus.CounterValue, syncRole}
	syncBytes        = metric{"imbang_sync_bytes_total", "Bytes of these messages, without the headers of IP and UDP.", prometheus.CounterValue, syncRole}
	syncLast         = metric{"imbang_sync_last_message_timestamp_seconds", "When the last message was sent or used, in seconds since 1970; 0 if none was.", prometheus.GaugeValue, syncRole}
	syncLost         = metric{"imbang_sync_lost_entries_total", "Entries that the director's ring had no room for.", prometheus.CounterValue, syncRole}
	syncUnbound      = metric{"imbang_sync_unbound_entries", "Received entries that wait for their service or server.", prometheus.GaugeValue, syncRole}
	syncBound        = metric{"imbang_sync_bound_entries_total", "Received entries that got their service and server after a wait.", prometheus.CounterValue, syncRole}
	syncDropped      = metric{"imbang_sync_dropped_total", "Messages or entries that were dropped, by reason.", prometheus.CounterValue, []string{"role", "of", "reason"}}
	flood            = metric{"imbang_syn_flood", "1 during a SYN flood.", prometheus.GaugeValue, nil}
)

// Describe sends nothing: the metrics depend on the table (an unchecked collector).
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.snapshot()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("imbang_scrape", "The scrape failed.", nil, nil), err)
		return
	}
	w := writer(out)
	w.daemon(s.Daemon)
	for i := range s.Services {
		w.service(&s.Services[i])
	}
	if !s.Daemon.NoDirector {
		w.director(&s.Director)
	}
	if s.VRRP != nil {
		w.vrrp(s.VRRP)
	}
	if c.nodeExporter {
		w.nodeExporter(s.Services)
	}
}

type writer chan<- prometheus.Metric

func (w writer) put(m metric, value float64, labels ...string) {
	w <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, m.labels, nil), m.kind, value, labels...)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (w writer) daemon(s *api.Status) {
	w.put(daemonStart, float64(s.Since.UnixMilli())/1e3)
	w.put(directorRequired, one(!s.NoDirector))
	w.put(reloadOK, one(s.ReloadError == ""))
	w.put(reloadTime, float64(s.Reloaded.UnixMilli())/1e3)
	w.put(drift, float64(len(s.Drift)))
	for _, a := range s.Alarms {
		w.put(alarm, 1, a.Name)
	}
	for _, r := range s.Synchronization {
		w.synchronization(r)
	}
	if s.Replication != nil {
		w.replication(s.Replication)
	}
	w.put(checkDelay, s.Checks.DelayP50MS/1e3, "50")
	w.put(checkDelay, s.Checks.DelayP99MS/1e3, "99")
	if s.Proxy != nil {
		w.proxy(s.Proxy)
	}
	for _, svc := range s.All() {
		w.put(serviceUp, one(svc.Up && !svc.Missing), svc.Name)
		w.put(serviceSorry, one(svc.Sorry), svc.Name)
		for _, m := range svc.Servers {
			w.server(svc.Name, m)
		}
	}
}

func (w writer) synchronization(r api.Synchronization) {
	w.put(syncUp, one(r.State == "running"), r.Role)
	w.put(syncMessages, float64(r.Messages), r.Role)
	w.put(syncEntries, float64(r.Entries), r.Role)
	w.put(syncBytes, float64(r.Bytes), r.Role)
	last := 0.0
	if !r.Last.IsZero() {
		last = float64(r.Last.UnixMilli()) / 1e3
	}
	w.put(syncLast, last, r.Role)
	if r.Role == "master" {
		w.put(syncLost, float64(r.Lost), r.Role)
	} else {
		w.put(syncUnbound, float64(r.Unbound), r.Role)
		w.put(syncBound, float64(r.Bound), r.Role)
	}
	for _, d := range r.Dropped {
		w.put(syncDropped, float64(d.Count), r.Role, d.Of, d.Reason)
	}
}

func (w writer) server(service string, m api.Server) {
	w.put(serverUp, one(m.State != "down" && m.State != "missing"), service, m.Name)
	for name, order := range map[string]*api.Order{"drain": m.Drain, "maintenance": m.Maintenance, "weight": m.WeightOrder} {
		if order != nil {
			w.put(serverOrder, 1, service, m.Name, name)
		}
	}
	for _, c := range m.Checks {
		w.put(checkUp, one(c.State != "down"), service, m.Name, c.Name)
		w.put(checkRuns, float64(c.Runs), service, m.Name, c.Name)
		w.put(checkFails, float64(c.Fails), service, m.Name, c.Name)
	}
}

func (w writer) service(s *model.ServiceStatus) {
	key := s.Key.String()
	w.put(svcOpened, float64(s.Total.Conns), key)
	for i := range s.Servers {
		m := &s.Servers[i]
		at := m.AddrPort().String()
		w.put(weightAdmin, float64(m.Weight), key, at)
		w.put(weightEff, float64(m.EffectiveWeight()), key, at)
		w.put(serverConns, float64(m.Active), key, at, "active")
		w.put(serverConns, float64(m.Inactive), key, at, "inactive")
		w.put(serverConns, float64(m.Persistent), key, at, "persistent")
		w.put(serverOpened, float64(m.Total.Conns), key, at)
		w.put(serverInPkts, float64(m.Total.InPkts), key, at)
		w.put(serverOutPkts, float64(m.Total.OutPkts), key, at)
		w.put(serverInBytes, float64(m.Total.InBytes), key, at)
		w.put(serverOutBytes, float64(m.Total.OutBytes), key, at)
	}
}

func (w writer) director(s *director.Status) {
	w.put(connections, float64(s.Connections))
	w.put(capacity, float64(s.Capacity.Connections))
	w.put(room, float64(s.Tables.Used))
	w.put(tableBytes, float64(s.Tables.Bytes))
	w.put(sweepPass, time.Duration(s.Tables.SweepPass).Seconds())
	w.put(sweepLongest, time.Duration(s.Tables.SweepLongest).Seconds())
	w.put(flood, one(s.Attack.Now))
	for _, a := range s.Attachments {
		w.put(attached, 1, a.Role, a.Device, string(a.Hook))
	}
	for _, r := range s.Reasons {
		w.put(packets, float64(r.Packets), r.Verdict, r.Reason)
	}
}

var backend = []string{"local_address", "local_port", "remote_address", "remote_port", "proto", "local_mark"}

// Metrics of node_exporter's collector ipvs, which reads /proc/net/ip_vs and
// ip_vs_stats: names, labels and forms are those.
var (
	nodeConns    = metric{"node_ipvs_connections_total", "The total number of connections made.", prometheus.CounterValue, nil}
	nodeInPkts   = metric{"node_ipvs_incoming_packets_total", "The total number of incoming packets.", prometheus.CounterValue, nil}
	nodeOutPkts  = metric{"node_ipvs_outgoing_packets_total", "The total number of outgoing packets.", prometheus.CounterValue, nil}
	nodeInBytes  = metric{"node_ipvs_incoming_bytes_total", "The total amount of incoming data.", prometheus.CounterValue, nil}
	nodeOutBytes = metric{"node_ipvs_outgoing_bytes_total", "The total amount of outgoing data.", prometheus.CounterValue, nil}
	nodeActive   = metric{"node_ipvs_backend_connections_active", "The current active connections by local and remote address.", prometheus.GaugeValue, backend}
	nodeInactive = metric{"node_ipvs_backend_connections_inactive", "The current inactive connections by local and remote address.", prometheus.GaugeValue, backend}
	nodeWeight   = metric{"node_ipvs_backend_weight", "The current backend weight by local and remote address.", prometheus.GaugeValue, backend}
)

func (w writer) nodeExporter(services []model.ServiceStatus) {
	var sum model.Stats
	for i := range services {
		s := &services[i]
		t := s.Total
		sum = model.Stats{Conns: sum.Conns + t.Conns, InPkts: sum.InPkts + t.InPkts, OutPkts: sum.OutPkts + t.OutPkts, InBytes: sum.InBytes + t.InBytes, OutBytes: sum.OutBytes + t.OutBytes}
		address, port, mark := "", strconv.Itoa(int(s.Key.Port)), ""
		if s.Key.Mark != 0 {
			mark = fmt.Sprintf("%08X", s.Key.Mark)
		} else {
			address = net.IP(s.Key.Addr.AsSlice()).String()
		}
		for j := range s.Servers {
			m := &s.Servers[j]
			labels := []string{address, port, m.Addr.String(), strconv.Itoa(int(m.Port)), strings.ToUpper(s.Key.Protocol.String()), mark}
			w.put(nodeActive, float64(m.Active), labels...)
			w.put(nodeInactive, float64(m.Inactive), labels...)
			w.put(nodeWeight, float64(m.EffectiveWeight()), labels...)
		}
	}
	w.put(nodeConns, float64(sum.Conns))
	w.put(nodeInPkts, float64(sum.InPkts))
	w.put(nodeOutPkts, float64(sum.OutPkts))
	w.put(nodeInBytes, float64(sum.InBytes))
	w.put(nodeOutBytes, float64(sum.OutBytes))
}
