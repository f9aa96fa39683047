// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/metrics"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/director"
)

const alarmMetrics = "metrics"

// scraped is the listener of metrics, and what it was made of.
type scraped struct {
	of     config.Metrics
	server *http.Server
}

// serveMetrics listens as the configuration says, anew if that has changed.
func (d *Daemon) serveMetrics() {
	want := d.core.Config.Daemon.Metrics
	if d.scraped.of == want && (d.scraped.server != nil || !want.Listen.IsValid()) {
		return
	}
	d.closeMetrics()
	d.scraped.of = want
	if !want.Listen.IsValid() {
		d.clear(alarmMetrics)
		return
	}
	server, err := listenMetrics(want.Listen, metrics.New(d.snapshot, want.NodeExporter), d.Log)
	if err != nil {
		d.raise(alarmMetrics, err.Error())
		return
	}
	d.scraped.server = server
	d.clear(alarmMetrics)
}

func listenMetrics(at netip.AddrPort, c prometheus.Collector, log *slog.Logger) (*http.Server, error) {
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}))
	s := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = s.Serve(l) }()
	return s, nil
}

func (d *Daemon) closeMetrics() {
	if d.scraped.server != nil {
		_ = d.scraped.server.Close()
	}
	d.scraped = scraped{}
}

// vrrpPatience is how long a scrape waits for imbang vrrp.
const vrrpPatience = time.Second

// snapshot is what a scrape shows. The process imbang vrrp is asked first, not by the daemon's
// loop, which must not wait for it.
func (d *Daemon) snapshot() (s *metrics.Snapshot, err error) {
	v := d.askVRRP()
	err = d.do(func() error {
		s = &metrics.Snapshot{Daemon: d.status(), VRRP: v}
		return d.table.use(func(t *director.Director) (err error) {
			if s.Services, err = t.Services(); err == nil {
				s.Director, err = t.Status()
			}
			return err
		})
	})
	if err == nil && s.Daemon.Proxy != nil {
		d.askProxy(s.Daemon.Proxy)
	}
	return s, err
}

// askVRRP is nil if there is no process.
func (d *Daemon) askVRRP() *metrics.VRRP {
	s, err := process.AskWithin(d.vrrpDir, vrrpPatience)
	if errors.Is(err, process.ErrNone) {
		return nil
	}
	return &metrics.VRRP{Status: s}
}
