// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// SynFloodConfig says what to send, and for how long.
type SynFloodConfig struct {
	Kind        FloodKind     // of what the flood consists
	Rate        int           // packets per second
	Duration    time.Duration // of each flood
	Established int           // connections that are there before
	Requests    int           // per second on all of them
	Newcomers   int           // new connections per second, each from another address
	Room        int           // for connections
	Rounds      int
	CPU         int    // where the generator runs
	Executable  string // path of imbang
	Progress    func(done, all int)
}

// SynFloodResult compares what the director does against a flood.
type SynFloodResult struct {
	Kind      FloodKind        `json:"kind"`
	Rate      int              `json:"rate_wanted"`
	Seconds   float64          `json:"seconds"`
	Room      int              `json:"room_for_connections"`
	CPUs      int              `json:"cpus"`
	Policies  []SynFloodPolicy `json:"policies"`
	Defended  bool             `json:"defended"` // the last of them met all targets but that of the rate
	FullSpeed bool             `json:"full_speed"`
	Targets   []Target         `json:"targets"`
}

// SynFloodPolicy is what one of them achieved.
type SynFloodPolicy struct {
	Name      string        `json:"name"`
	Settings  []string      `json:"settings"`
	Rate      stats.Summary `json:"syns_per_s"`
	Requests  int           `json:"established_requests"`
	Lost      int           `json:"established_lost"`
	Broken    int           `json:"established_broken"` // connections
	Newcomers int           `json:"new_tried"`
	Succeeded int           `json:"new_succeeded"`
	Success   stats.Summary `json:"new_success"` // of 1
	// Of new connections to a service that is not flooded.
	OthersTried     int           `json:"others_tried"`
	OthersSucceeded int           `json:"others_succeeded"`
	OthersSuccess   stats.Summary `json:"others_success"` // of 1
	// Flows of UDP to the flooded service, and those that still reached their server in the end.
	Flows       int           `json:"flows"`
	FlowsAlive  int           `json:"flows_alive"`
	ConnectP50  stats.Summary `json:"new_connect_p50_ms"`
	ConnectP99  stats.Summary `json:"new_connect_p99_ms"`
	Connections stats.Summary `json:"connections_at_the_end"`
	Reached     stats.Summary `json:"connections_opened"` // the servers had so many SYNs, and repeats
	CPU         stats.Summary `json:"cpu_busy"`           // share of the machine
	Generator   stats.Summary `json:"generator_cpu"`      // share of a CPU that it got, with the director's part
}

func share(n, of int) float64 { return float64(n) / float64(max(1, of)) }

// newcomerAddresses are enough that none comes twice in most runs.
const newcomerAddresses = 3500

type synflood struct {
	SynFloodConfig
	program
	cluster *topology.Cluster
	servers []server.Server
	maker   *floodMaker
	echoes  []func() error
}

// SynFlood carries the comparison out. Nothing is left behind.
func SynFlood(ctx context.Context, c SynFloodConfig) (result *SynFloodResult, err error) {
	name, err := newRun()
	if err != nil {
		return nil, err
	}
	files, err := tempDir(name)
	if err != nil {
		return nil, err
	}
	f := &synflood{SynFloodConfig: c}
	defer func() { err = errors.Join(err, f.down(), os.RemoveAll(files)) }()
	if err := f.up(ctx, name, files); err != nil {
		return nil, err
	}
	return f.compare(ctx)
}

// up builds the cluster.
func (f *synflood) up(ctx context.Context, name host.Run, files string) error {
	var err error
	f.cluster, err = topology.Build(name, topology.Spec{
		Families: []topology.Family{topology.IPv4, topology.IPv6}, ClientNamespaces: 1, ClientAddresses: newcomerAddresses, Servers: 3,
	})
	if err != nil {
		return err
	}
	f.program = program{f.cluster.Director, f.Executable}
	abyss := f.Kind.abyss()
	if err := errors.Join(
		f.ns.AddNeighbours(topology.ClientDevice, abyssMAC, abyss.hop),
		f.ns.AddRoutes(host.Route{Dst: abyss.all, Via: abyss.hop}),
	); err != nil {
		return err
	}
	for _, s := range f.cluster.Servers {
		one, err := server.Start(s.Namespace, s.Name, study.Server{Kind: study.Nginx, Page: pageSize}, files, "")
		if err != nil {
			return err
		}
		f.servers = append(f.servers, one)
		stop, err := echo(s.Namespace, s.Name)
		if err != nil {
			return err
		}
		f.echoes = append(f.echoes, stop)
		if err := one.WaitReady(ctx, f.honest(), netip.AddrPortFrom(s.Addr[f.Kind.family()], server.Port)); err != nil {
			return err
		}
	}
	gateway, err := f.ns.LinkMAC(topology.ClientDevice)
	if err != nil {
		return err
	}
	from, err := net.ParseMAC(abyssMAC)
	if err != nil {
		return err
	}
	f.maker = newFloodMaker(f.Kind, [6]byte(from), [6]byte(gateway), f.flooded().at, uint32(time.Now().UnixNano()))
	return nil
}

func (f *synflood) honest() *host.Namespace { return f.cluster.Clients[0].Namespace }

// floodService is a virtual service, and the port of its servers.
type floodService struct {
	option string // of ipvsadm
	at     netip.AddrPort
	port   uint16
}

// flooded is the service that the flood is for.
func (f *synflood) flooded() floodService {
	port := uint16(server.Port)
	if !f.Kind.tcp() {
		port = echoPort
	}
	return floodService{f.Kind.option(), netip.AddrPortFrom(f.cluster.Virtual(f.Kind.family()), port), port}
}

// other is a service of TCP on the same servers, for which no flood is.
func (f *synflood) other() floodService {
	return floodService{"-t", netip.AddrPortFrom(f.cluster.Virtual(f.Kind.family()), 8000+server.Port), server.Port}
}

// honestService is where honest clients have connections before the flood: the flooded service, if it is
// of TCP.
func (f *synflood) honestService() floodService {
	if f.Kind.tcp() {
		return f.flooded()
	}
	return f.other()
}

func (f *synflood) down() error {
	for _, s := range f.servers {
		s.Stop()
	}
	for _, stop := range f.echoes {
		_ = stop() // the namespace goes with it
	}
	if f.cluster == nil {
		return nil
	}
	return f.cluster.Close()
}

func (f *synflood) compare(ctx context.Context) (*SynFloodResult, error) {
	r := &SynFloodResult{Kind: f.Kind, Rate: f.Rate, Seconds: f.Duration.Seconds(), Room: f.Room}
	policies := f.Kind.policies()
	n := len(policies)
	samples := make([]synSamples, n)
	for round := range f.Rounds {
		for turn := range n {
			// Everyone comes first, and last, as often as the others.
			which := (round + turn) % n
			s, err := f.sample(ctx, policies[which].settings)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", policies[which].name, err)
			}
			samples[which].add(s)
			if f.Progress != nil {
				f.Progress(round*n+turn+1, f.Rounds*n)
			}
		}
	}
	for i, p := range policies {
		r.Policies = append(r.Policies, samples[i].policy(p.name, p.settings))
	}
	m, err := measure.ReadMachine()
	r.CPUs = m.CPUs
	last := r.Policies[n-1]
	r.Targets = f.Kind.targets(&last)
	r.Defended = !slices.ContainsFunc(r.Targets[1:], func(t Target) bool { return !t.Met })
	r.FullSpeed = last.Rate.Min >= 0.98*float64(f.Rate)
	return r, err
}

// synSample is one flood against one policy.
type synSample struct {
	flood     flooded
	keepers   *keepers
	newcomers *newcomers // to the flooded service, if it is of TCP,
	others    *newcomers // and to the other one
	flows     *flows     // of the flooded service, if it is of UDP
	end       synTable
	cpu       float64
}

// synTable is what the director says in the end.
type synTable struct{ connections, opened float64 }

// sample floods a director that is made for it.
func (f *synflood) sample(ctx context.Context, settings []string) (s synSample, err error) {
	defer func() {
		_, _, detached := f.program.run(context.WithoutCancel(ctx), "", "detach")
		err = errors.Join(err, detached)
	}()
	if err := f.set(ctx, settings); err != nil {
		return s, err
	}
	defer f.provide(ctx)()
	addresses := f.cluster.Clients[0].Addresses[f.Kind.family()]
	known, others := addresses[:f.Established], addresses[f.Established:]
	if s.keepers, err = openKeepers(f.honest(), known, f.honestService().at, f.Established); err != nil {
		return s, err
	}
	defer s.keepers.close()
	s.flows, s.newcomers, s.others = &flows{}, &newcomers{}, &newcomers{}
	if f.Kind == FloodUDP {
		if s.flows, err = openFlows(f.honest(), known, f.flooded().at); err != nil {
			return s, err
		}
		defer s.flows.close()
	}
	flood, cancel := context.WithTimeout(ctx, f.Duration)
	defer cancel()
	coming, stop := context.WithTimeout(ctx, lastComers(f.Duration))
	defer stop()
	before, err := measure.ReadMachine()
	if err != nil {
		return s, err
	}
	var honest sync.WaitGroup
	honest.Go(func() { s.keepers.run(flood, f.Requests) })
	honest.Go(func() { s.flows.run(flood) })
	honest.Go(func() { s.others.run(coming, f.honest(), others, f.other().at, f.Newcomers) })
	if f.Kind.tcp() {
		reversed := slices.Clone(others) // at one time both kinds come from different addresses
		slices.Reverse(reversed)
		honest.Go(func() { s.newcomers.run(coming, f.honest(), reversed, f.flooded().at, f.Newcomers) })
	}
	outside, dev := f.cluster.Uplink()
	s.flood, err = sendFlood(flood, outside, dev, f.Rate, f.CPU, f.maker)
	after, machine := measure.ReadMachine()
	s.cpu = after.BusySince(before)
	table, listed := f.table(ctx)
	s.end = table
	honest.Wait()
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	return s, errors.Join(err, machine, listed)
}

// set loads a director with a service.
func (f *synflood) set(ctx context.Context, settings []string) error {
	commands := [][]string{
		{"attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice, "--max-connections", strconv.Itoa(f.Room)},
		append([]string{"settings"}, settings...),
	}
	for _, service := range []floodService{f.flooded(), f.other()} {
		commands = append(commands, []string{"ipvsadm", "-A", service.option, service.at.String(), "-s", "wlc"})
		for _, s := range f.cluster.Servers {
			to := netip.AddrPortFrom(s.Addr[f.Kind.family()], service.port).String()
			commands = append(commands, []string{"ipvsadm", "-a", service.option, service.at.String(), "-r", to, "-m"})
		}
	}
	for _, c := range commands {
		if _, _, err := f.program.run(ctx, "", c...); err != nil {
			return err
		}
	}
	return nil
}

// provide adds memory to the director's connection table, as imbang run does, until stop is called.
func (f *synflood) provide(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var providing sync.WaitGroup
	providing.Go(func() {
		_ = f.ns.Do(func() error {
			director.Provide(ctx, func(error) {}) // without it the kernel allocates for each packet
			return nil
		})
	})
	return func() {
		cancel()
		providing.Wait()
	}
}

// table reads how full the director's is.
func (f *synflood) table(ctx context.Context) (t synTable, err error) {
	now, err := f.listed(ctx, "-Ln", 2)
	if err != nil {
		return t, err
	}
	totals, err := f.listed(ctx, "-Ln --stats --exact", 5)
	if err != nil {
		return t, err
	}
	return synTable{float64(now[0] + now[1]), float64(totals[0])}, nil
}

// synSamples are those of one policy.
type synSamples struct {
	requests, lost, broken, tried, succeeded                                   int
	othersTried, othersSucceeded, flows, alive                                 int
	rate, success, others, p50, p99, connections, opened, processor, generator []float64
}

func (a *synSamples) add(s synSample) {
	a.requests += s.keepers.requests
	a.lost += s.keepers.lost
	a.broken += s.keepers.broken
	a.tried += s.newcomers.tried
	a.succeeded += s.newcomers.succeeded
	a.othersTried += s.others.tried
	a.othersSucceeded += s.others.succeeded
	a.flows += len(s.flows.conns)
	a.alive += s.flows.alive
	a.rate = append(a.rate, s.flood.rate())
	if s.newcomers.tried > 0 {
		a.success = append(a.success, share(s.newcomers.succeeded, s.newcomers.tried))
	}
	a.others = append(a.others, share(s.others.succeeded, s.others.tried))
	if c := slices.Sorted(slices.Values(s.newcomers.connect)); len(c) > 0 {
		a.p50 = append(a.p50, 1000*c[len(c)/2])
		a.p99 = append(a.p99, 1000*c[len(c)*99/100])
	}
	a.connections = append(a.connections, s.end.connections)
	a.opened = append(a.opened, s.end.opened)
	a.processor = append(a.processor, s.cpu)
	a.generator = append(a.generator, s.flood.cpu.Seconds()/s.flood.took.Seconds())
}

func (a *synSamples) policy(name string, settings []string) SynFloodPolicy {
	return SynFloodPolicy{
		Name: name, Settings: settings, Rate: stats.Summarize(a.rate),
		Requests: a.requests, Lost: a.lost, Broken: a.broken,
		Newcomers: a.tried, Succeeded: a.succeeded, Success: stats.Summarize(a.success),
		OthersTried: a.othersTried, OthersSucceeded: a.othersSucceeded, OthersSuccess: stats.Summarize(a.others),
		Flows: a.flows, FlowsAlive: a.alive,
		ConnectP50: stats.Summarize(a.p50), ConnectP99: stats.Summarize(a.p99),
		Connections: stats.Summarize(a.connections), Reached: stats.Summarize(a.opened), CPU: stats.Summarize(a.processor),
		Generator: stats.Summarize(a.generator),
	}
}
