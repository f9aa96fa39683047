// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// suffering is the faults of one cell under way.
type suffering struct {
	lab    *lab
	timers []*time.Timer
	mu     sync.Mutex
	err    error
}

// suffer begins the study's faults, which count from the end of the warm-up.
func (l *lab) suffer(warmup time.Duration) *suffering {
	s := &suffering{lab: l}
	for _, f := range l.config.Study.Load.Faults {
		s.timers = append(s.timers, time.AfterFunc(warmup+f.At, func() { s.note(f, l.servers[f.Server].Do(f)) }))
	}
	return s
}

func (s *suffering) note(f study.Fault, err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, fmt.Errorf("%s s%d: %w", f.Do, f.Server+1, err))
}

// over ends the faults and makes the servers what they were, for the next cell.
func (s *suffering) over(ctx context.Context) error {
	for _, t := range s.timers {
		t.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.lab.config.Study.Load.Faults {
		s.err = errors.Join(s.err, s.lab.heal(ctx, f.Server))
	}
	return s.err
}

// heal makes a server what it was at first.
func (l *lab) heal(ctx context.Context, i int) (err error) {
	srv := l.servers[i]
	for _, do := range []study.Fault{{Do: "resume"}, {Do: "start"}, {Do: "slow", Factor: 1}} {
		if do.Do == "slow" && l.config.Study.Servers[i].Kind != study.Model {
			continue
		}
		if err := srv.Do(do); err != nil && do.Do != "resume" { // of one that was killed
			return err
		}
	}
	target := netip.AddrPortFrom(l.cluster.Servers[i].Addr[topology.Family(l.config.Study.Families[0])], server.Port)
	if err := srv.WaitReady(ctx, l.cluster.Clients[0].Namespace, target); err != nil {
		return err
	}
	l.pids[srv.Name()], err = srv.PIDs()
	return err
}
