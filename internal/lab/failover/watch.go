// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
)

// Watch looks for transitions without a fault, under load.
type Watch struct {
	Variants []string
	For      time.Duration // of each variant
	Load     float64       // share of the capacity
	Servers  int
	Programs Programs
	// Logs is where messages of the directors go if there was a transition, by variant.
	Logs string
	Say  func(string)
}

// Validate reports the first thing that cannot be run, and its remedy.
func (w Watch) Validate() error {
	p := DefaultPlan()
	p.Variants = w.Variants
	if err := p.Validate(); err != nil {
		return err
	}
	switch {
	case w.For < time.Second:
		return fmt.Errorf("a watch of %v: at least 1s", w.For)
	case w.Load < 0 || w.Load > 1:
		return fmt.Errorf("a load of %g: from 0 to 1, a share of the capacity", w.Load)
	}
	return nil
}

// Watched is what was seen of a variant.
type Watched struct {
	Variant     string  `json:"variant"`
	Seconds     float64 `json:"seconds"`
	Capacity    float64 `json:"capacity"`    // requests per second of a closed loop, before
	Rate        float64 `json:"rate"`        // requests per second asked for
	Requests    int     `json:"requests"`    // sent
	Failed      int     `json:"failed"`      // of these
	Transitions int     `json:"transitions"` // times that a director got or lost the addresses
	// By director; of keepalived nothing is known.
	LateMS      []float64 `json:"late_ms,omitempty"` // longest time by which imbang vrrp handled a timer late, since it started
	NotRealTime []string  `json:"not_real_time,omitempty"`
	Interrupted bool      `json:"interrupted,omitempty"` // before the time was over
}

// pilotUsers and pilotTime are those of the closed loop that measures the capacity.
const (
	pilotUsers = 32
	pilotTime  = 3 * time.Second
)

// Run watches each variant, one after the other. When ctx is cancelled it returns what was
// seen until then, with ctx's error.
func (w Watch) Run(ctx context.Context) (seen []Watched, err error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	others, err := findOthers(ctx, w.Variants)
	if err != nil {
		return nil, err
	}
	w.Programs.Keepalived = others.keepalived
	if err := prepare(Plan{}, w.Say); err != nil {
		return nil, err
	}
	p := DefaultPlan()
	p.Faults, p.Servers = nil, w.Servers // one side
	room := &room{programs: w.Programs}
	defer func() { err = errors.Join(err, room.close()) }()
	for _, name := range w.Variants {
		s, err := room.at(ctx, p, place{plain, onMachines(name)})
		if err != nil {
			return seen, err
		}
		one, err := w.one(ctx, s, name)
		if one.Seconds > 0 {
			seen = append(seen, one)
		}
		if err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func (w Watch) one(ctx context.Context, s *site, name string) (seen Watched, err error) {
	v, err := ParseVariant(name)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, s.reset()) }()
	if err := s.begin(ctx, v, plain); err != nil {
		return seen, err
	}
	seen.Variant = name
	plan := load.Plan{
		Target: s.target(), ServerHeader: server.Header, Clients: s.loadClients(), Timeout: requestPatience,
	}
	pilot := plan
	pilot.Concurrency, pilot.Duration = pilotUsers, pilotTime
	// The pilot is more load than the watch: what it makes of VRRP is not counted.
	r, err := load.Run(ctx, pilot, nil)
	if err != nil {
		return seen, err
	}
	seen.Capacity = r.ReplyRate
	if err := s.awaitMaster(ctx, first); err != nil {
		return seen, err
	}
	begin := time.Now()
	var loadErr error
	if seen.Rate = w.Load * seen.Capacity; seen.Rate >= 1 {
		w.Say(fmt.Sprintf("%s: %.0f requests/s, %.0f %% of the capacity, for %v", name, seen.Rate, 100*w.Load, w.For))
		plan.Rate, plan.Arrivals, plan.Duration = seen.Rate, arrivals.Poisson, w.For
		if r, loadErr = load.Run(ctx, plan, nil); r != nil {
			seen.Requests = r.Issued
			seen.Failed = r.Loss.Total() + r.Replies - r.Status.Success
		}
	} else {
		loadErr = sleep(ctx, w.For)
	}
	end := time.Now()
	seen.Seconds = end.Sub(begin).Seconds()
	changes, err := s.masters.all()
	if err != nil {
		return seen, errors.Join(loadErr, err)
	}
	seen.Transitions = judge(changes, begin, end, second).transitions
	seen.Interrupted = ctx.Err() != nil
	if seen.Transitions > 0 {
		logs := filepath.Join(w.Logs, fileName(Cell{Variant: name, Fault: "none", Setting: plain}))
		if err := s.logs(logs); err != nil {
			return seen, errors.Join(loadErr, err)
		}
		w.Say("messages of the directors: " + logs)
	}
	for _, d := range s.directors {
		if d, is := d.(*namespaced); is && v.Process == imbangProcess {
			status, err := d.vrrpStatus(context.WithoutCancel(ctx))
			if err != nil {
				return seen, errors.Join(loadErr, err)
			}
			seen.LateMS, seen.NotRealTime = append(seen.LateMS, status.LateMS), append(seen.NotRealTime, status.NotRealTime)
		}
	}
	return seen, loadErr
}

// WatchText prints what was seen.
func WatchText(w io.Writer, seen []Watched) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "variant\tminutes\ttransitions\trequests/s\tof\trequests failed\ttimer late, by director [ms]")
	for _, s := range seen {
		fmt.Fprintf(t, "%s\t%.1f\t%d\t%.0f\t%.0f\t%d of %d\t%v\n", s.Variant, s.Seconds/60, s.Transitions, s.Rate, s.Capacity, s.Failed, s.Requests, s.LateMS)
	}
	return t.Flush()
}
