// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/stats"
)

// PathConfig says who takes part in the comparison of whole paths, and for how
// long.
type PathConfig struct {
	Competitors []string // of PathCompetitors
	Rounds      int
	Sittings    int           // everything is set up anew for each
	Sample      time.Duration // of each measurement
	Rate        float64       // connections/s of the open loop; 0: found in the first round
	Megabytes   int           // size of the large file
	Executable  string        // path of imbang
	Progress    func(done, all int)
}

// yardstick is what the others are compared with first: forwarding alone.
const yardstick = "direct"

// pathKinds are the competitors: engines of the lab, all of which balance round
// robin. imbang sends packets through its devices, as all others do;
// imbang-peer has the shortcut of veth pairs, which no network card offers.
var pathKinds = map[string]struct {
	engine, scheduler string
	attach            []string
}{
	yardstick:      {yardstick, "", nil},
	ownName:        {"imbang", "rr", []string{"--redirect", "device"}},
	peerName:       {"imbang", "rr", []string{"--redirect", "peer"}},
	"nftables":     {"nftables", "rr", nil},
	nftFlow:        {nftFlow, "rr", nil},
	"haproxy-tcp":  {"haproxy-tcp", "roundrobin", nil},
	"nginx-stream": {"nginx-stream", "rr", nil},
}

// peerName is imbang with the shortcut of veth pairs.
const peerName = "imbang-peer"

// PathCompetitors lists who can take part.
func PathCompetitors() []string {
	return []string{yardstick, ownName, peerName, nftFlow, "nftables", "haproxy-tcp", "nginx-stream"}
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
	Sittings    int        `json:"sittings,omitempty"` // of the rounds, each set up anew
	Rows        []PathRow  `json:"results"`
	Requests    []PathLoad `json:"requests"`
	Missing     []string   `json:"missing,omitempty"`
	// Loop is the time of a fixed loop beside each round: how the machine's
	// speed changed meanwhile.
	Loop stats.Summary `json:"fixed_loop_ms"`
	// Others is the share of the CPUs, 0 to 1, that other programs or a
	// hypervisor had in a round's closed loops.
	Others  stats.Summary `json:"others_share"`
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
	// Within holds the median of ever more such ratios with 95 % confidence.
	Within map[string]stats.Interval `json:"over_interval,omitempty"`
}

// PathLoad counts a competitor's requests over all of its samples.
type PathLoad struct {
	Competitor string `json:"competitor"`
	Sent       int    `json:"sent"`
	Lost       int    `json:"lost"`
	// Late are the samples at the fixed rate in which the generator did not keep
	// its schedule; they are in the medians.
	Late int `json:"late_samples,omitempty"`
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
)

// pathRun is one in progress.
type pathRun struct {
	PathConfig
	files   string // with the large file, which all servers share
	kernel  []int  // processes that work for everybody
	seed    uint64
	done    int                             // rounds
	samples map[string]map[string][]float64 // of competitors, by measure and round
	tallies map[string]*pathTally
	loop    []float64
	shares  []float64   // of the CPUs that others had
	others  othersShare // in this round
	result  PathResult
}

// pathTally counts a competitor's requests, and their replies by server.
type pathTally struct {
	PathLoad
	replies map[string]int
}

// Path carries the comparison out. Nothing is left behind. Interrupted, it
// returns what is finished with an error that says so.
func Path(ctx context.Context, c PathConfig) (result *PathResult, err error) {
	name, err := newLabRun()
	if err != nil {
		return nil, err
	}
	c.Competitors = apart(c.Competitors)
	p := &pathRun{
		PathConfig: c, samples: map[string]map[string][]float64{}, tallies: map[string]*pathTally{},
		result: PathResult{
			PageBytes: pageSize, Connections: pathConnections, Megabytes: c.Megabytes, Seconds: c.Sample.Seconds(), Rate: c.Rate,
			Generator: fmt.Sprintf("imbang's own (internal/lab/load), %d threads, %d client addresses", pathThreads, pathClients),
		},
	}
	if p.files, err = tempDir(name); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.files)) }()
	if _, err := writeRandom(filepath.Join(p.files, bulkFile), c.Megabytes); err != nil {
		return nil, err
	}
	if p.kernel, err = softirqThreads(); err != nil {
		return nil, err
	}
	return p.compare(ctx)
}

// again ends the name of a competitor that takes part once more.
const again = " again"

// apart gives competitors that are named more than once a name each.
func apart(names []string) (list []string) {
	for _, name := range names {
		for slices.Contains(list, name) {
			name += again
		}
		list = append(list, name)
	}
	return list
}

// compare shares the rounds out among the sittings.
func (p *pathRun) compare(ctx context.Context) (*PathResult, error) {
	names, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	sittings := min(p.Sittings, p.Rounds)
	for i := range sittings {
		p.result.Sittings = i + 1
		err := p.sitting(ctx, names, p.Rounds*(i+1)/sittings)
		if ctx.Err() != nil && p.done > 0 {
			return p.conclude(), &Interrupted{p.done, p.Rounds, "rounds", ctx.Err()}
		}
		if err != nil {
			return nil, err
		}
	}
	return p.conclude(), nil
}

// enter finds out who can take part; who cannot is named.
func (p *pathRun) enter(ctx context.Context) (names []string, err error) {
	for _, name := range p.Competitors {
		kind, ok := pathKinds[strings.ReplaceAll(name, again, "")]
		e, known := engine.New(kind.engine, p.Executable)
		if !ok || !known {
			return nil, fmt.Errorf("no competitor of the name %q", name)
		}
		if _, err := e.Version(ctx); err != nil {
			p.result.Missing = append(p.result.Missing, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		names = append(names, name)
		p.samples[name], p.tallies[name] = map[string][]float64{}, newPathTally(name)
	}
	if len(names) == 0 {
		return nil, errors.New("none of the competitors is installed")
	}
	return names, nil
}

func newPathTally(name string) *pathTally {
	return &pathTally{PathLoad{Competitor: name}, map[string]int{}}
}
