// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// wantEnd expects everything to expire once packets and edits have ended, the auditor
// to find nothing, and nothing to be left when the last service is deleted.
func (s *soak) wantEnd() {
	s.Helper()
	s.must(s.Zero(nil)) // which repairs what a killed edit left
	s.wantSound("packets have ended")
	// Without the director, as sockets send again what got no answer, for minutes.
	s.must(s.ns.Do(func() error { return Detach(false) }))
	s.wantExpiry(*soakPatience) // a template that waits for its connections takes a minute more
	s.say("every connection has ended")
	s.wantSound("connections have ended")
	s.wantNoLoads()
	s.wantService()
	s.must(s.Flush())
	marks, err := s.Marks()
	s.must(err)
	for _, m := range marks {
		s.must(s.Mark(MarkRule{Prefix: m.Prefix}))
	}
	s.wantExpiry(time.Minute)
	s.wantSound("the table is empty")
	s.wantNoLoads()
	for name, m := range map[string]*ebpf.Map{
		"services": s.maps.Services, "calls": s.maps.Calls, "call_numbers": s.maps.CallNumbers, "outbound": s.maps.Outbound, "marks": s.maps.Marks,
		"bucket_tables": s.maps.BucketTables, "maglevs": s.maps.Maglevs,
		"localities": s.maps.Localities, "locality_sets": s.maps.LocalitySets,
	} {
		if n := s.entries(m); n != 0 {
			s.Errorf("%d entries are left in %s", n, name)
		}
	}
	if n := s.linesInUse(); n != 0 {
		s.Errorf("the lines of %d entries are left", n)
	}
}

// wantExpiry expects every connection to end.
func (s *soak) wantExpiry(limit time.Duration) {
	s.Helper()
	deadline := time.Now().Add(limit)
	for {
		s.must(s.interrupted.Err())
		n := s.conns()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			left, err := collected(s.Director)
			s.must(err)
			for _, c := range left[:min(len(left), 30)] {
				s.say("left: %+v", c)
			}
			s.dumpConns()
			s.Fatalf("%d connections are left %v after the last packet (seed %d)", n, limit, s.seed)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// wantSound audits.
func (s *soak) wantSound(when string) {
	s.Helper()
	report, err := s.Audit(context.Background(), AuditOptions{})
	s.must(err)
	if !report.Clean() || len(report.NotJudged) > 0 {
		s.Errorf("when %s (seed %d): not judged %q; %v", when, s.seed, report.NotJudged, findingsError(report.Findings))
	}
}

// wantNoLoads expects no server to count a connection.
func (s *soak) wantNoLoads() {
	s.Helper()
	set, err := s.config()
	s.must(err)
	loads, err := lookupAll[bpfobj.LbLoad](s.maps.Loads, set.Servers)
	s.must(err)
	for id, l := range loads {
		if l.Active != 0 || l.Inactive != 0 || l.Persistent != 0 {
			s.Errorf("without a connection, server %d has %+v (seed %d)", id, l, s.seed)
		}
	}
}

// wantService expects requests to be answered when a simple service is there.
func (s *soak) wantService() {
	s.Helper()
	s.must(s.Flush(), s.attachMode(ModeTC))
	for _, f := range families {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			s.must(s.ns.Do(func() error {
				s.serve(service(p, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080), f.real(1, 8080))
				return nil
			}))
		}
	}
	set, err := s.Settings()
	s.must(err)
	for _, one := range set {
		if one.Name != "conn_reuse_mode" && one.Name != "am_droprate" && !strings.HasPrefix(one.Name, "sync_") {
			s.must(s.Set(Setting{Name: one.Name}))
		}
	}
	s.ctx = context.Background()
	a := &asker{soak: s, random: rand.New(rand.NewPCG(s.seed, 1<<33))}
	for _, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			for range 20 {
				if err := s.clients.Do(func() error { return a.ask(network, at(f.vip(vipMasq), 80), a.client(f)) }); err != nil {
					s.Errorf("in the end, %s by %s: %v", f.name, network, err)
				}
			}
		}
	}
	for _, c := range a.idle {
		c.Close()
	}
	s.must(s.ns.Do(func() error { return Detach(false) }))
}
