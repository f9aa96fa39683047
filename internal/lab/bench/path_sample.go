// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// What is measured of a path, by the names in results.
const (
	pathNew       = "new connections"
	pathKeepAlive = "keep-alive requests"
	pathBulk      = "bulk"
	pathP50       = "p50 at a fixed rate"
	pathP99       = "p99 at a fixed rate"
	pathCPUConn   = "CPU per connection"
	pathCPUReq    = "CPU per request"
	// CPU time of the whole machine, and of it what plain forwarding does not
	// use under the same load in the same round.
	pathMachineConn = "machine CPU per connection"
	pathMachineReq  = "machine CPU per request"
	pathBalanceConn = "CPU of balancing per connection"
	pathBalanceReq  = "CPU of balancing per request"
	pathConnect     = "connect p50, one connection"
	pathOne         = "request p50, one connection" // from the SYN to the last byte
)

type pathMeasure struct{ name, unit string }

// pathMeasures lists them with their units.
var pathMeasures = []pathMeasure{
	{pathNew, "1/s"}, {pathKeepAlive, "1/s"}, {pathBulk, "MB/s"}, {pathP50, "ms"}, {pathP99, "ms"},
	{pathCPUConn, "us"}, {pathCPUReq, "us"},
	{pathMachineConn, "us"}, {pathMachineReq, "us"}, {pathBalanceConn, "us"}, {pathBalanceReq, "us"}, {pathConnect, "us"}, {pathOne, "us"},
}

// pathSamples take one each.
var pathSamples = []func(context.Context, *pathSite) error{sampleNew, sampleKeepAlive, sampleBulk, sampleRate, sampleConnect}

func sampleNew(ctx context.Context, s *pathSite) error {
	r, err := s.closed(ctx, 1)
	if err == nil {
		s.got[pathNew] = r.ReplyRate
	}
	return err
}

func sampleKeepAlive(ctx context.Context, s *pathSite) error {
	r, err := s.closed(ctx, load.Unlimited)
	if err == nil {
		s.got[pathKeepAlive], s.got[pathCPUReq] = r.ReplyRate, each(r.cpu, r.Generator.Requests)
		s.got[pathMachineReq] = each(r.machine, r.Generator.Requests)
	}
	return err
}

// sampleRate is an open loop, well below what any of them carries. CPU time is
// taken here, where it is not all that there is. It takes twice as long, since
// what it measures varies most.
func sampleRate(ctx context.Context, s *pathSite) error {
	r, err := s.run(ctx, load.Plan{Rate: s.Rate, Duration: 2 * s.Sample, Precedence: true}, pathThreads)
	if err != nil {
		return err
	}
	if r.Generator.Behind {
		s.tally.Late++
	}
	s.got[pathP50], s.got[pathP99] = r.Response.P50MS, r.Response.P99MS
	s.got[pathCPUConn], s.got[pathMachineConn] = each(r.cpu, r.Generator.Connections), each(r.machine, r.Generator.Connections)
	return nil
}

func sampleConnect(ctx context.Context, s *pathSite) error {
	r, err := s.run(ctx, load.Plan{Concurrency: 1, Duration: s.Sample / 2}, 1)
	if err == nil {
		s.got[pathConnect], s.got[pathOne] = r.Connect.P50MS*1000, r.Response.P50MS*1000
	}
	return err
}

// sampleBulk downloads of the large file what comes in a sample's time, four
// times: on which CPUs the ends of a connection come to lie makes much of its
// speed.
func sampleBulk(ctx context.Context, s *pathSite) error {
	var bytes int64
	var took time.Duration
	for range 4 {
		target := s.targets[rand.N(len(s.targets))].String()
		n, d, err := fetchFor(ctx, s.client(), target, s.Megabytes, warmUp, s.Sample)
		if err != nil {
			return err
		}
		bytes, took = bytes+n, took+d
		s.tally.Sent++
	}
	s.got[pathBulk] = float64(bytes) / 1e6 / took.Seconds()
	return nil
}

// closed is a closed loop.
func (s *pathSite) closed(ctx context.Context, perConnection int) (*pathLoaded, error) {
	p := load.Plan{Concurrency: pathConnections, RequestsPerConnection: perConnection, Duration: s.Sample}
	return s.run(ctx, p, pathThreads)
}

// warmUp is how long a load runs before it counts: a cluster that slept finds
// its caches cold. CPU time is of all of it.
const warmUp = 25 * time.Millisecond

// pathLoaded is what a load measured, with the CPU time of all who took part
// and of the whole machine.
type pathLoaded struct {
	*load.Result
	cpu, machine time.Duration
}

// each is microseconds of a CPU time for each of n.
func each(cpu time.Duration, n int) float64 {
	return float64(cpu.Nanoseconds()) / 1000 / float64(max(n, 1))
}

// run makes a load with some threads.
func (s *pathSite) run(ctx context.Context, plan load.Plan, threads int) (*pathLoaded, error) {
	s.seed++
	plan.Targets, plan.ServerHeader, plan.Seed, plan.Warmup = s.targets, server.Header, s.seed, warmUp
	sources := s.cluster.Clients[0].Addresses[topology.IPv4]
	// Threads have addresses of their own, and begin with another each time.
	for i := range threads {
		own := sources[i*len(sources)/threads : (i+1)*len(sources)/threads]
		turned := rand.N(len(own))
		own = append(append([]netip.Addr{}, own[turned:]...), own[:turned]...)
		plan.Clients = append(plan.Clients, load.Client{Namespace: s.client().Path(), Sources: own})
	}
	before, err := s.readCPU()
	if err != nil {
		return nil, err
	}
	r, err := load.Run(ctx, plan, nil)
	if err != nil {
		return nil, err
	}
	after, err := s.readCPU()
	if err != nil {
		return nil, err
	}
	s.tally.count(r)
	cpu := after.spent - before.spent + time.Duration(r.Generator.CPUSeconds*float64(time.Second))
	if plan.Concurrency == pathConnections {
		s.others.add(before.machine, after.machine, cpu)
	}
	return &pathLoaded{r, cpu, after.machine.WorkSince(before.machine)}, nil
}

// count adds a load to what the competitor was sent.
func (l *pathTally) count(r *load.Result) {
	l.Sent += r.Scheduled
	for server, n := range r.PerServer {
		l.replies[server] += n
	}
	notPages := r.Replies - r.Status.Success
	for cause, n := range map[string]int{
		"client": r.Loss.Client.Total(), "refused": r.Loss.Refused, "reset": r.Loss.Reset, "timeout": r.Loss.Timeout,
		"unreachable": r.Loss.Unreachable, "truncated": r.Loss.Truncated, "malformed": r.Loss.Malformed, "error page": notPages,
	} {
		if n == 0 {
			continue
		}
		if l.Causes == nil {
			l.Causes = map[string]int{}
		}
		l.Causes[cause] += n
		l.Lost += n
	}
}
