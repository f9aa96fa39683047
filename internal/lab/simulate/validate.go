// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/distribution"
)

// Validation is a case whose outcome is known without a simulation.
type Validation struct {
	Name      string   `json:"name"`
	Source    string   `json:"source"` // of what is expected
	Figure    string   `json:"figure"`
	Expected  float64  `json:"expected"`
	Simulated Estimate `json:"simulated"`
	Right     bool     `json:"right"`

	config Config
	of     func(*Outcome) float64
	exact  bool // it does not depend on the seed
}

// Validate simulates what theory knows, with 400 000 connections a case and
// unit of effort.
func Validate(ctx context.Context, effort float64, seed uint64, jobs int, progress func(done, all int)) (_ []Validation, err error) {
	cases := validations(effort, seed, jobs)
	total := 0
	configs := make([]*Config, len(cases))
	for i := range cases {
		configs[i] = &cases[i].config
		total += configs[i].Connections * configs[i].Repeats
	}
	s, err := newStage(configs...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	before := 0
	for i := range cases {
		v := &cases[i]
		if progress != nil {
			v.config.Progress = func(done, _ int) { progress(before+done, total) }
		}
		outcomes, err := s.play(ctx, &v.config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		v.judge(outcomes)
		before += v.config.Connections * v.config.Repeats
	}
	return cases, nil
}

// judge compares. In one case of twenty the truth lies outside of a 95 %
// interval; twice as wide it does so in one of hundreds.
func (v *Validation) judge(outcomes []Outcome) {
	samples := make([]float64, len(outcomes))
	for i := range outcomes {
		samples[i] = v.of(&outcomes[i])
	}
	v.Simulated = estimate(samples)
	room := 2 * v.Simulated.HalfWidth
	if v.exact {
		room = 1e-9
	}
	v.Right = math.Abs(v.Simulated.Mean-v.Expected) <= room
}

func validations(effort float64, seed uint64, jobs int) []Validation {
	const (
		rate    = 70.0
		service = 0.01 // so that a server is busy 70 % of the time
	)
	farm := func(scheduler string, servers, concurrency, backlog int, distributed distribution.Distribution, rate float64) Config {
		c := Config{
			Concurrency: concurrency, Backlog: backlog, Distribution: distributed, Service: time.Duration(service * 1e9),
			Arrivals: arrivals.Pattern{Distribution: arrivals.Poisson}, Clients: 1 << 16, Destinations: 1,
			Schedulers: []string{scheduler}, Rates: []float64{rate},
			Connections: int(50000 * effort), Warmup: 0.1, Repeats: 8, Seed: seed, Jobs: jobs,
		}
		for range servers {
			c.Servers = append(c.Servers, Server{Speed: 1, Weight: 1})
		}
		return c
	}
	weighted := farm("wrr", 3, 1000, -1, distribution.Exponential, rate)
	weighted.Warmup, weighted.Connections = 0, weighted.Connections/9*9
	for i := range weighted.Servers {
		weighted.Servers[i].Weight = int32(4 - i)
	}
	dealt := farm("rr", 4, 1000, -1, distribution.Exponential, rate)
	dealt.Warmup, dealt.Connections = 0, dealt.Connections/4*4
	response := func(o *Outcome) float64 { return o.Response.MeanMS / 1000 }
	share := func(server int) func(*Outcome) float64 {
		return func(o *Outcome) float64 { return float64(o.PerServer[server].Served) / float64(o.Connections) }
	}
	const mean, lost = "mean response time [s]", "share of connections lost"
	return []Validation{
		{Name: "one server, exponential service", Source: "M/M/1", Figure: mean, Expected: mm1(rate, service),
			config: farm("rr", 1, 1, -1, distribution.Exponential, rate), of: response},
		{Name: "one server, constant service", Source: "M/D/1", Figure: mean, Expected: md1(rate, service),
			config: farm("rr", 1, 1, -1, distribution.Constant, rate), of: response},
		{Name: "rr over four servers", Source: "Erlang-4/M/1", Figure: mean, Expected: em1(4*rate, service, 4),
			config: farm("rr", 4, 1, -1, distribution.Exponential, 4*rate), of: response},
		{Name: "sh over four servers, many clients", Source: "four of M/M/1", Figure: mean, Expected: mm1(rate, service),
			config: farm("sh", 4, 1, -1, distribution.Exponential, 4*rate), of: response},
		{Name: "one server, eight at a time", Source: "M/M/8", Figure: mean, Expected: mmc(8*rate, service, 8),
			config: farm("rr", 1, 8, -1, distribution.Exponential, 8*rate), of: response},
		{Name: "one server, eight at a time, none waits", Source: "Erlang B", Figure: lost, Expected: erlangB(8*rate, service, 8),
			config: farm("rr", 1, 8, 0, distribution.Exponential, 8*rate), of: func(o *Outcome) float64 { return lossShare(o) }},
		{Name: "nq over four servers, none waits", Source: "Erlang B", Figure: lost, Expected: erlangB(4*rate, service, 4),
			config: farm("nq", 4, 1, 0, distribution.Exponential, 4*rate), of: func(o *Outcome) float64 { return lossShare(o) }},
		{Name: "rr deals evenly", Source: "Linux's rr", Figure: "the first server's share", Expected: 0.25, config: dealt, of: share(0), exact: true},
		{Name: "wrr deals by weights 4, 3, 2", Source: "Linux's wrr", Figure: "the first server's share", Expected: 4.0 / 9, config: weighted, of: share(0), exact: true},
	}
}

// ValidationText prints a table.
func ValidationText(w io.Writer, all []Validation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tknown from\tfigure\texpected\tsimulated\t")
	for _, v := range all {
		verdict := "right"
		if !v.Right {
			verdict = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s ±%s\t%s\n", v.Name, v.Source, v.Figure,
			figure(v.Expected, 4), figure(v.Simulated.Mean, 4), figure(v.Simulated.HalfWidth, 2), verdict)
	}
	return t.Flush()
}
