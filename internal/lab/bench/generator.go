// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
	"imbang/internal/lab/tool"
	"imbang/internal/lab/topology"
)

// GeneratorConfig says how much load each generator makes, and how often.
type GeneratorConfig struct {
	Connections int
	Concurrency int // of closed loops
	Rounds      int
	Progress    func(done, all int)
}

// GeneratorResult compares the lab's load generator with others, all against
// the same server over the same path, one request on each connection.
type GeneratorResult struct {
	PageBytes  int         `json:"page_bytes"`
	Rate       float64     `json:"open_loop_rate"` // four fifths of what the first, uncounted round could
	Generators []Generator `json:"generators"`
	Missing    []string    `json:"missing,omitempty"` // why some others were left out
	// KeepsUp: no other generator of the same kind of loop made more
	// connections per CPU second in every round.
	KeepsUp bool `json:"keeps_up"`
}

// Generator is one of them.
type Generator struct {
	Name string `json:"name"`
	Loop string `json:"loop"`
	// PerCPUSecond is connections that the server's kernel accepted for each
	// second of CPU time of the generator's process; over veth, the network's
	// work as far as the server's socket is in it, for all alike.
	PerCPUSecond stats.Summary `json:"connections_per_cpu_s"`
	PerSecond    stats.Summary `json:"connections_per_s"`
	// Ratio is imbang's connections per CPU second over this one's, round by
	// round.
	Ratio stats.Summary `json:"imbang_over_it"`
}

const (
	ownName  = "imbang"
	openLoop = "open"
	pageSize = 375
)

// contender is a generator with its measurements.
type contender struct {
	name, loop        string
	plan              func() load.Plan
	other             *tool.Tool // nil for our own
	perCPU, perSecond []float64
}

// generators is a comparison in progress.
type generators struct {
	GeneratorConfig
	cluster    *topology.Cluster
	server     server.Server
	rate       float64
	contenders []*contender
	result     GeneratorResult
}

// Generators carries the comparison out. Nothing is left behind.
func Generators(ctx context.Context, c GeneratorConfig) (result *GeneratorResult, err error) {
	name, err := newRun()
	if err != nil {
		return nil, err
	}
	files, err := tempDir(name)
	if err != nil {
		return nil, err
	}
	g := &generators{GeneratorConfig: c, result: GeneratorResult{PageBytes: pageSize}}
	defer func() { err = errors.Join(err, g.down(), os.RemoveAll(files)) }()
	if err := g.up(ctx, name, files); err != nil {
		return nil, err
	}
	return g.compare(ctx)
}

// up builds a cluster whose director merely forwards.
func (g *generators) up(ctx context.Context, name host.Run, files string) error {
	var err error
	if g.cluster, err = topology.Build(name, topology.Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 1}); err != nil {
		return err
	}
	// Generators that close first leave their ports in TIME_WAIT, more of
	// them in a minute than there are, and httperf tries them one by one for
	// ever. The client keeps none.
	if err := g.client().Sysctl("net.ipv4.tcp_max_tw_buckets", "0"); err != nil {
		return err
	}
	s := g.cluster.Servers[0]
	if g.server, err = server.Start(s.Namespace, s.Name, study.Server{Kind: study.Nginx, Page: pageSize}, files, ""); err != nil {
		return err
	}
	return g.server.WaitReady(ctx, g.client(), g.target())
}

func (g *generators) client() *host.Namespace { return g.cluster.Clients[0].Namespace }

func (g *generators) target() netip.AddrPort {
	return netip.AddrPortFrom(g.cluster.Servers[0].Addr[topology.IPv4], server.Port)
}

func (g *generators) down() error {
	if g.server != nil {
		g.server.Stop()
	}
	if g.cluster == nil {
		return nil
	}
	return g.cluster.Close()
}

// enter lists who takes part.
func (g *generators) enter() {
	open := func() load.Plan { return g.plan(load.Plan{Rate: g.rate, Connections: g.Connections}) }
	closed := func() load.Plan {
		return g.plan(load.Plan{Concurrency: g.Concurrency, Connections: g.Connections})
	}
	timed := func() load.Plan { // for those that know no number
		length := time.Duration(math.Ceil(float64(g.Connections)/g.rate)) * time.Second
		return g.plan(load.Plan{Concurrency: g.Concurrency, Duration: length})
	}
	g.contenders = []*contender{{name: ownName, loop: openLoop, plan: open}, {name: ownName, loop: "closed", plan: closed}}
	for _, o := range []struct {
		name, loop string
		plan       func() load.Plan
	}{{"httperf", openLoop, open}, {"ab", "closed", closed}, {"wrk", "closed", timed}} {
		t, err := tool.New(o.name)
		if err == nil {
			_, err = t.Find()
		}
		if err != nil {
			g.result.Missing = append(g.result.Missing, err.Error())
			continue
		}
		g.contenders = append(g.contenders, &contender{name: o.name, loop: o.loop, plan: o.plan, other: &t})
	}
}

func (g *generators) plan(p load.Plan) load.Plan {
	p.Target, p.Clients = g.target(), []load.Client{{Namespace: g.client().Path()}}
	return p
}

func (g *generators) compare(ctx context.Context) (*GeneratorResult, error) {
	g.enter()
	// The first round finds the rate that the path carries, and warms up.
	first := g.contenders[1]
	if err := g.measure(ctx, first); err != nil {
		return nil, err
	}
	g.rate = 0.8 * first.perSecond[0]
	first.perCPU, first.perSecond = nil, nil
	n := len(g.contenders)
	for round := range g.Rounds {
		for turn := range n {
			// Everyone comes first, and last, as often as the others.
			if err := g.measure(ctx, g.contenders[(round+turn)%n]); err != nil {
				return nil, err
			}
			if g.Progress != nil {
				g.Progress(round*n+turn+1, g.Rounds*n)
			}
		}
	}
	return g.conclude(), nil
}

// measure runs a generator once.
func (g *generators) measure(ctx context.Context, c *contender) error {
	before, err := g.accepted()
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, err := c.run(ctx)
	if err != nil {
		return fmt.Errorf("%s, %s loop: %w", c.name, c.loop, err)
	}
	took := time.Since(began)
	after, err := g.accepted()
	if err != nil {
		return err
	}
	n := float64(after - before)
	if n == 0 || cpu <= 0 {
		return fmt.Errorf("%s, %s loop: %g connections in %s of CPU time", c.name, c.loop, n, cpu)
	}
	c.perCPU, c.perSecond = append(c.perCPU, n/cpu.Seconds()), append(c.perSecond, n/took.Seconds())
	return nil
}

// run makes the load and returns the CPU time of the process that made it:
// for our own all of this one, garbage collection included.
func (c *contender) run(ctx context.Context) (time.Duration, error) {
	if c.other != nil {
		r, err := c.other.Run(ctx, c.plan(), unread)
		if err != nil {
			return 0, err
		}
		return time.Duration(r.Generator.CPUSeconds * float64(time.Second)), nil
	}
	before, err := ownCPU()
	if err != nil {
		return 0, err
	}
	r, err := load.Run(ctx, c.plan(), nil)
	if err != nil {
		return 0, err
	}
	if r.Loss.Total() > 0 {
		return 0, fmt.Errorf("%d of %d requests lost: %+v", r.Loss.Total(), r.Scheduled, r.Loss)
	}
	after, err := ownCPU()
	return after - before, err
}

// unread is what the output of others is good for here: the server's kernel
// counts for all of them.
func unread(io.Reader, string) (*tool.Output, error) { return &tool.Output{}, nil }

func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// accepted is how many connections the server's kernel has accepted.
func (g *generators) accepted() (n int64, err error) {
	err = g.cluster.Servers[0].Namespace.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		defer f.Close()
		n, err = passiveOpens(f)
		return err
	})
	return n, err
}

// passiveOpens finds the counter in /proc/net/snmp: a line of names and one of
// values for each protocol.
func passiveOpens(snmp io.Reader) (int64, error) {
	var names []string
	lines := bufio.NewScanner(snmp)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if i := slices.Index(names, "PassiveOpens"); i > 0 && i < len(words) {
			return strconv.ParseInt(words[i], 10, 64)
		}
	}
	return 0, errors.New("/proc/net/snmp has no PassiveOpens")
}

func (g *generators) conclude() *GeneratorResult {
	r := &g.result
	r.Rate, r.KeepsUp = g.rate, true
	own := map[string][]float64{}
	for _, c := range g.contenders {
		if c.name == ownName {
			own[c.loop] = c.perCPU
		}
	}
	for _, c := range g.contenders {
		ratios := make([]float64, len(c.perCPU))
		for i := range ratios {
			ratios[i] = own[c.loop][i] / c.perCPU[i]
		}
		one := Generator{
			Name: c.name, Loop: c.loop, Ratio: stats.Summarize(ratios),
			PerCPUSecond: stats.Summarize(c.perCPU), PerSecond: stats.Summarize(c.perSecond),
		}
		r.KeepsUp = r.KeepsUp && one.Ratio.Max >= 1
		r.Generators = append(r.Generators, one)
	}
	return r
}
