// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/measure"
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
	pathConnect   = "connect p50, one connection"
	pathOne       = "request p50, one connection" // from the SYN to the last byte
)

// pathMeasures lists them with their units.
var pathMeasures = []struct{ name, unit string }{
	{pathNew, "1/s"}, {pathKeepAlive, "1/s"}, {pathBulk, "MB/s"}, {pathP50, "ms"}, {pathP99, "ms"},
	{pathCPUConn, "us"}, {pathCPUReq, "us"}, {pathConnect, "us"}, {pathOne, "us"},
}

// pathSamples take a turn's measurements, one after the other.
var pathSamples = []func(context.Context, *pathDirector, map[string]float64) error{
	sampleNew, sampleKeepAlive, sampleBulk, sampleRate, sampleConnect,
}

// pathDirector is a competitor that is set up.
type pathDirector struct {
	*pathRun
	name    string
	targets []netip.AddrPort
}

// backends are the servers' own addresses.
func (p *pathRun) backends() (list []netip.AddrPort) {
	for _, s := range p.cluster.Servers {
		list = append(list, netip.AddrPortFrom(s.Addr[topology.IPv4], server.Port))
	}
	return list
}

func sampleNew(ctx context.Context, d *pathDirector, got map[string]float64) error {
	r, err := d.closed(ctx, 1, d.Sample)
	if err == nil {
		got[pathNew] = r.ReplyRate
	}
	return err
}

func sampleKeepAlive(ctx context.Context, d *pathDirector, got map[string]float64) error {
	r, err := d.closed(ctx, load.Unlimited, d.Sample)
	if err == nil {
		got[pathKeepAlive], got[pathCPUReq] = r.ReplyRate, r.cpuEach(r.Generator.Requests)
	}
	return err
}

// sampleRate is an open loop, well below what any of them carries. CPU time is
// taken here, where it is not all that there is.
func sampleRate(ctx context.Context, d *pathDirector, got map[string]float64) error {
	r, err := d.run(ctx, load.Plan{Rate: d.Rate, Duration: d.Sample, Precedence: true}, pathThreads)
	if err == nil {
		got[pathP50], got[pathP99] = r.Response.P50MS, r.Response.P99MS
		got[pathCPUConn] = r.cpuEach(r.Generator.Connections)
	}
	return err
}

func sampleConnect(ctx context.Context, d *pathDirector, got map[string]float64) error {
	r, err := d.run(ctx, load.Plan{Concurrency: 1, Duration: d.Sample / 2}, 1)
	if err == nil {
		got[pathConnect], got[pathOne] = r.Connect.P50MS*1000, r.Response.P50MS*1000
	}
	return err
}

// sampleBulk downloads the large file again and again, one download at a time.
func sampleBulk(ctx context.Context, d *pathDirector, got map[string]float64) error {
	var took time.Duration
	n := 0
	for ; n == 0 || took < d.Sample; n++ {
		target := d.targets[n%len(d.targets)].String()
		one, err := fetch(ctx, d.client(), target, nil, d.Megabytes)
		if err != nil {
			return err
		}
		took += one
	}
	d.loads[d.name].Sent += n
	got[pathBulk] = float64(n*d.Megabytes) / took.Seconds()
	return nil
}

// closed is a closed loop.
func (d *pathDirector) closed(ctx context.Context, perConnection int, length time.Duration) (*pathLoaded, error) {
	p := load.Plan{Concurrency: pathConnections, RequestsPerConnection: perConnection, Duration: length}
	return d.run(ctx, p, pathThreads)
}

// pathLoaded is what a load measured, and the whole machine's CPU time.
type pathLoaded struct {
	*load.Result
	cpu time.Duration
}

// cpuEach is microseconds of the CPU time for each of n.
func (r *pathLoaded) cpuEach(n int) float64 {
	return float64(r.cpu.Nanoseconds()) / 1000 / float64(max(n, 1))
}

// run makes a load with some threads.
func (d *pathDirector) run(ctx context.Context, plan load.Plan, threads int) (*pathLoaded, error) {
	d.seed++
	plan.Targets, plan.ServerHeader, plan.Seed = d.targets, server.Header, d.seed
	sources := d.cluster.Clients[0].Addresses[topology.IPv4]
	// Threads have addresses of their own, and begin with another each time.
	for i := range threads {
		own := sources[i*len(sources)/threads : (i+1)*len(sources)/threads]
		turned := rand.N(len(own))
		own = append(append([]netip.Addr{}, own[turned:]...), own[:turned]...)
		plan.Clients = append(plan.Clients, load.Client{Namespace: d.client().Path(), Sources: own})
	}
	before, err := measure.ReadMachine()
	if err != nil {
		return nil, err
	}
	r, err := load.Run(ctx, plan, nil)
	if err != nil {
		return nil, err
	}
	after, err := measure.ReadMachine()
	if err != nil {
		return nil, err
	}
	d.count(r)
	busy := after.BusySince(before) * float64(after.CPUs)
	return &pathLoaded{r, time.Duration(busy * float64(after.At.Sub(before.At)))}, nil
}

// count adds a load to what the competitor was sent.
func (d *pathDirector) count(r *load.Result) {
	l := d.loads[d.name]
	l.Sent += r.Scheduled
	for server, n := range r.PerServer {
		d.replies[d.name][server] += n
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
