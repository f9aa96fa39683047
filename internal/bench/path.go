// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/topology"
)

// PathConfig says who takes part in the comparison of whole paths, and for how
// long.
type PathConfig struct {
	Competitors []string // of PathCompetitors
	Rounds      int
	Sample      time.Duration // of each measurement
	Rate        float64       // connections/s of the open loop; 0: found in the first round
	Megabytes   int           // size of the large file
	Executable  string        // this program
	Progress    func(done, all int)
}

// yardstick is what the others are compared with first: forwarding alone.
const yardstick = "direct"

// PathCompetitors are the lab's engines that can take part, with the scheduler
// of each. All of them deal connections out by turns.
var pathSchedulers = map[string]string{
	yardstick: "", "imbang": "rr", "nftables": "rr", "haproxy-tcp": "roundrobin", "nginx-stream": "rr",
}

// PathCompetitors lists who can take part.
func PathCompetitors() []string {
	return []string{yardstick, "imbang", "nftables", "haproxy-tcp", "nginx-stream"}
}

// PathResult is the whole path from a client by a director to three servers
// and back, with each competitor as the director.
type PathResult struct {
	Generator   string     `json:"generator"`
	PageBytes   int        `json:"page_bytes"`
	Connections int        `json:"connections"` // of the closed loops
	Megabytes   int        `json:"megabytes"`
	Seconds     float64    `json:"seconds_per_sample"`
	Rate        float64    `json:"open_loop_rate"`
	Rounds      int        `json:"rounds"`
	Rows        []PathRow  `json:"results"`
	Requests    []PathLoad `json:"requests"`
	Missing     []string   `json:"missing,omitempty"`
	// Loop is the time of a fixed loop beside each sample: how the machine's
	// speed changed meanwhile.
	Loop    stats.Summary `json:"fixed_loop_ms"`
	Targets []Target      `json:"targets,omitempty"`
}

// PathRow is one figure of a competitor.
type PathRow struct {
	Measure    string        `json:"measure"`
	Competitor string        `json:"competitor"`
	Unit       string        `json:"unit"`
	Value      stats.Summary `json:"value"`
	Rounds     []float64     `json:"by_round"`
	// Over is its ratio to others, round by round.
	Over map[string]stats.Summary `json:"over,omitempty"`
}

// PathLoad counts a competitor's requests over all of its samples.
type PathLoad struct {
	Competitor string `json:"competitor"`
	Sent       int    `json:"sent"`
	Lost       int    `json:"lost"`
	// Causes of the losses, by the load generator's names.
	Causes map[string]int `json:"causes,omitempty"`
	// Shares are of the three servers, of all replies.
	Shares []float64 `json:"server_shares"`
}

const (
	pathConnections = 32
	pathServers     = 3
	// Ports of one address come back within seconds, and with them what the
	// servers and the director remember of them.
	pathClients = 16
	pathThreads = 2
	warmUp      = 300 * time.Millisecond
)

// pathRun is one in progress.
type pathRun struct {
	PathConfig
	cluster *topology.Cluster
	servers []server.Server
	files   string
	seed    uint64
	samples map[string]map[string][]float64 // of competitors, by measure and round
	loads   map[string]*PathLoad
	replies map[string]map[string]int // of competitors, by server
	loop    []float64
	done    int
	result  PathResult
}

// Path carries the comparison out. Nothing is left behind. Interrupted, it
// returns what is finished with an error that says so.
func Path(ctx context.Context, c PathConfig) (result *PathResult, err error) {
	name, err := newLabRun()
	if err != nil {
		return nil, err
	}
	p := &pathRun{
		PathConfig: c, samples: map[string]map[string][]float64{}, loads: map[string]*PathLoad{}, replies: map[string]map[string]int{},
		result: PathResult{
			PageBytes: pageSize, Connections: pathConnections, Megabytes: c.Megabytes, Seconds: c.Sample.Seconds(), Rate: c.Rate,
			Generator: fmt.Sprintf("imbang's own (internal/lab/load), %d threads, %d client addresses", pathThreads, pathClients),
		},
	}
	if p.files, err = os.MkdirTemp("", name.String()); err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, p.down(), os.RemoveAll(p.files)) }()
	if err := p.up(ctx, name); err != nil {
		return nil, err
	}
	return p.compare(ctx)
}

// newLabRun is newRun for what has a whole cluster.
func newLabRun() (host.Run, error) {
	if os.Geteuid() != 0 {
		return host.Run{}, errors.New("not permitted: the benchmark makes network namespaces; run it as root, with sudo")
	}
	if _, err := host.Sweep(topology.Prefix); err != nil {
		return host.Run{}, err
	}
	if _, err := host.SweepFiles(os.TempDir(), topology.Prefix); err != nil {
		return host.Run{}, err
	}
	return host.NewRun(topology.Prefix)
}

// up builds the cluster, with a page and the large file on every server.
func (p *pathRun) up(ctx context.Context, name host.Run) error {
	var err error
	p.cluster, err = topology.Build(name, topology.Spec{ClientNamespaces: 1, ClientAddresses: pathClients, Servers: pathServers})
	if err != nil {
		return err
	}
	if p.servers, _, err = startFileServers(p.cluster, p.files, p.Megabytes, p.Executable); err != nil {
		return err
	}
	for i, s := range p.servers {
		if err := s.WaitReady(ctx, p.client(), p.backends()[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *pathRun) client() *host.Namespace { return p.cluster.Clients[0].Namespace }

func (p *pathRun) down() error {
	for _, s := range p.servers {
		s.Stop()
	}
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Close()
}

// compare lets everyone have a turn in each round, in random order.
func (p *pathRun) compare(ctx context.Context) (*PathResult, error) {
	names, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.rehearse(ctx, names); err != nil {
		return nil, err
	}
	for round := range p.Rounds {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			err := p.turn(ctx, name)
			if ctx.Err() != nil && round > 0 {
				return p.conclude(round), &Interrupted{round, p.Rounds, "rounds", ctx.Err()}
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return p.conclude(p.Rounds), nil
}

// enter finds out who can take part; who cannot is named.
func (p *pathRun) enter(ctx context.Context) (names []string, err error) {
	for _, name := range p.Competitors {
		e, ok := engine.New(name, p.Executable)
		if !ok {
			return nil, fmt.Errorf("no competitor of the name %q", name)
		}
		if _, err := e.Version(ctx); err != nil {
			p.result.Missing = append(p.result.Missing, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		names = append(names, name)
		p.samples[name], p.loads[name], p.replies[name] = map[string][]float64{}, &PathLoad{Competitor: name}, map[string]int{}
	}
	if len(names) == 0 {
		return nil, errors.New("none of the competitors is installed")
	}
	return names, nil
}

// rehearse gives everyone a first turn that is not counted. It shows that all
// three servers answer, and what the slowest carries: a third of that is the
// open loop's rate.
func (p *pathRun) rehearse(ctx context.Context, names []string) error {
	slowest := 0.0
	for _, name := range names {
		err := p.with(ctx, name, func(d *pathDirector) error {
			_, err := d.closed(ctx, 1, warmUp)
			if err != nil {
				return err
			}
			r, err := d.closed(ctx, 1, min(time.Second, p.Sample))
			if err == nil && (slowest == 0 || r.ReplyRate < slowest) {
				slowest = r.ReplyRate
			}
			return err
		})
		if err == nil {
			err = p.allAnswered(name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.loads[name], p.replies[name] = &PathLoad{Competitor: name}, map[string]int{}
	}
	if p.Rate == 0 {
		p.Rate = max(100, float64(int(slowest/3)/100*100))
	}
	p.result.Rate = p.Rate
	return nil
}

// allAnswered wants each server to have given a fair share of the replies.
func (p *pathRun) allAnswered(name string) error {
	shares := p.shares(name)
	if len(shares) < pathServers || slices.Min(shares) < 0.5/pathServers {
		return fmt.Errorf("the servers' shares of the replies are %.2f: not by turns", shares)
	}
	return nil
}

// shares are the servers' parts of a competitor's replies.
func (p *pathRun) shares(name string) (list []float64) {
	all := 0
	for _, n := range p.replies[name] {
		all += n
	}
	for _, server := range slices.Sorted(maps.Keys(p.replies[name])) {
		list = append(list, float64(p.replies[name][server])/float64(all))
	}
	return list
}

// with runs fn on a freshly set up director, and takes it down.
func (p *pathRun) with(ctx context.Context, name string, fn func(*pathDirector) error) (err error) {
	e, _ := engine.New(name, p.Executable) // enter has found it
	setup := engine.Setup{
		Cluster: p.cluster, Family: topology.IPv4, Servers: p.cluster.Servers, Weights: []int{1, 1, 1},
		Scheduler: pathSchedulers[name], Dir: p.files, Threads: 1,
	}
	instance, err := e.Start(ctx, setup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Stop(context.WithoutCancel(ctx))) }()
	d := &pathDirector{pathRun: p, name: name, targets: instance.Targets()}
	if name == yardstick { // plain forwarding has no virtual address
		d.targets = p.backends()
	}
	measure.Settle(2 * time.Second)
	return fn(d)
}

// turn takes all samples of a competitor. What an unfinished one has brought is
// not kept.
func (p *pathRun) turn(ctx context.Context, name string) error {
	return p.with(ctx, name, func(d *pathDirector) error {
		if _, err := d.closed(ctx, 1, warmUp); err != nil {
			return err
		}
		got := map[string]float64{}
		for _, sample := range pathSamples {
			p.loop = append(p.loop, float64(measure.Calibrate().Microseconds())/1000)
			if err := sample(ctx, d, got); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			p.done++
			if p.Progress != nil {
				p.Progress(p.done, p.Rounds*len(p.samples)*len(pathSamples))
			}
		}
		for m, v := range got {
			p.samples[name][m] = append(p.samples[name][m], v)
		}
		return nil
	})
}
