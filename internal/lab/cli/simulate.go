// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/distribution"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/simulate"
	"imbang/internal/lab/study"
	"imbang/internal/model"
	"imbang/studies"
)

// simulation holds the flags of `imbang-lab simulate`.
type simulation struct {
	output                 command.OutputFlag
	config                 simulate.Config
	servers                int
	rhos                   []float64
	speeds                 []float64
	weights                []string
	distribution, arrivals string
	validate               bool
}

func newSimulateCommand() *cobra.Command {
	var f simulation
	c := &cobra.Command{
		Use:   "simulate [STUDY]",
		Short: "Simulate a study in virtual time with the real schedulers",
		Long: "Simulate a study of schedulers in virtual time. Clients and servers are simulated;\n" +
			"the data plane is the compiled one, and packets open and close every connection in\n" +
			"it. Its time is virtual, too, so that a thousand servers and millions of connections\n" +
			"take minutes. Requires root. Other programs on the machine change how long a\n" +
			"simulation takes, not its results.\n\n" +
			"STUDY gives weights, rates, schedulers, arrivals, clients, virtual addresses and their\n" +
			"popularity, the clients' timeout and repeats (built in: " + strings.Join(studies.Names(), ", ") + ");\n" +
			"flags override them. For servers of another kind than model, --service and\n" +
			"--concurrency give the speed.",
		Example: "  imbang-lab simulate --servers 1000 --schedulers rr,wlc,sh,twos --rho 0.5,0.8,0.95\n" +
			"  imbang-lab simulate --law pareto --speeds 1,4 --weights speed --schedulers wrr,wlc,sed\n" +
			"  imbang-lab simulate --destinations 20000 --cache 500 --schedulers wlc,dh,lblc,lblcr\n" +
			"  imbang-lab simulate thesis --service 10ms --concurrency 32\n" +
			"  imbang-lab simulate --validate",
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.output.Register(c, command.One[simulate.Report]("without --validate"), command.One[[]simulate.Validation]("--validate"))
	f.farmFlags(c)
	f.loadFlags(c)
	f.runFlags(c)
	return c
}

func (f *simulation) farmFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.servers, "servers", 1000, "real servers")
	fl.IntVar(&f.config.Concurrency, "concurrency", 1, "connections that a server serves at a time")
	fl.IntVar(&f.config.Backlog, "backlog", -1, "connections that may wait at a server before it refuses others; -1: no limit")
	fl.StringVar(&f.distribution, "law", "exponential", "distribution of service times: "+strings.Join(distribution.Names(), ", "))
	fl.DurationVar(&f.config.Service, "service", time.Second, "mean service time at speed 1")
	fl.Float64SliceVar(&f.speeds, "speeds", []float64{1}, "speeds of servers, repeated if there are more servers")
	fl.StringSliceVar(&f.weights, "weights", []string{"1"}, "weights of servers, repeated if there are more servers; or the word speed: ten times the speed")
	fl.IntVar(&f.config.Cache, "cache", 0, "destinations in the cache of a server, the last ones that it served; 0: no cache")
	fl.Float64Var(&f.config.HitShare, "hit-share", 0.2, "share of the service time that a cached destination takes, 0 to 1")
}

func (f *simulation) loadFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.Float64SliceVar(&f.config.Rates, "rates", nil, "connections per second")
	fl.Float64SliceVar(&f.rhos, "rho", []float64{0.8}, "connections per second as shares of the servers' capacity")
	fl.StringVar(&f.arrivals, "arrivals", "poisson", "how arrivals are spaced: "+arrivals.Examples)
	fl.DurationVar(&f.config.Patience, "patience", 0, "time after which a client gives up; 0: never")
	fl.IntVar(&f.config.Clients, "clients", 10000, "client addresses")
	fl.Float64Var(&f.config.ClientZipf, "client-zipf", 0, "Zipf exponent of the clients' popularity; 0: uniform")
	fl.IntVar(&f.config.Destinations, "destinations", 1, "virtual addresses; more than one make a fwmark service, as for transparent caches")
	fl.Float64Var(&f.config.DestinationZipf, "zipf", 0.8, "Zipf exponent of the destinations' popularity; 0: uniform")
}

func (f *simulation) runFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.config.Schedulers, "schedulers", []string{"rr", "wlc", "sh", "twos"}, "schedulers to compare")
	fl.IntVar(&f.config.Connections, "connections", 200000, "connections of a run")
	fl.Float64Var(&f.config.Warmup, "warmup", 0.25, "share of the connections, at the start of a run, that is not counted")
	fl.IntVar(&f.config.Repeats, "repeats", 3, "runs of each scheduler at each rate, each with other random numbers")
	fl.Uint64Var(&f.config.Seed, "seed", 0, "random seed (default: a new one, which is printed)")
	fl.IntVar(&f.config.Jobs, "jobs", runtime.NumCPU(), "runs at a time")
	fl.BoolVar(&f.config.Short, "short", false, "leave out two packets of a connection that do not change its state: the SYN-ACK and the last ACK")
	fl.BoolVar(&f.validate, "validate", false, "simulate cases whose result queueing theory gives, and compare")
	c.MarkFlagsMutuallyExclusive("rates", "rho")
}

func (f *simulation) run(cmd *cobra.Command, args []string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	if !cmd.Flags().Changed("seed") {
		f.config.Seed = uint64(rand.Uint32())
	}
	if err := f.prepare(cmd, args); err != nil {
		return command.Usage(err)
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	progress, finish := progressBar()
	err := f.play(ctx, cmd.OutOrStdout(), progress, finish)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing is left behind")
	}
	return err
}

// validateEffort comes to about a million connections.
const validateEffort = 0.25

// play simulates and prints. finish ends the bar before the results are printed.
func (f *simulation) play(ctx context.Context, out io.Writer, progress func(done, all int), finish func()) error {
	if f.validate {
		all, err := simulate.Validate(ctx, validateEffort, f.config.Seed, f.config.Jobs, progress)
		finish()
		if err != nil {
			return err
		}
		err = f.output.Print(out, all, func(w io.Writer) error { return simulate.ValidationText(w, all) })
		if err == nil && slices.ContainsFunc(all, func(v simulate.Validation) bool { return !v.Right }) {
			err = command.ErrNotAsExpected
		}
		return err
	}
	f.config.Progress = progress
	r, err := simulate.Run(ctx, f.config)
	finish()
	if err != nil {
		return err
	}
	return f.output.Print(out, r.Report(), r.Text)
}

// prepare makes the configuration of the study and the flags.
func (f *simulation) prepare(cmd *cobra.Command, args []string) (err error) {
	c := &f.config
	if len(args) > 0 {
		if err := f.study(cmd, args[0]); err != nil {
			return err
		}
	}
	if c.Distribution, err = distribution.Parse(f.distribution); err != nil {
		return fmt.Errorf("--law: %w", err)
	}
	if c.Arrivals, err = arrivals.Parse(f.arrivals); err != nil {
		return fmt.Errorf("--arrivals: %w", err)
	}
	for _, s := range c.Schedulers {
		if !slices.Contains(model.SchedulerNames(), s) {
			return fmt.Errorf("--schedulers: %q is unknown: want some of %s", s, strings.Join(model.SchedulerNames(), ", "))
		}
	}
	if twice(c.Schedulers) || twice(c.Rates) || twice(f.rhos) {
		return errors.New("--schedulers, --rates, --rho: want each once")
	}
	if err := f.makeServers(); err != nil {
		return err
	}
	if c.Service <= 0 || c.Concurrency < 1 {
		return errors.New("--service and --concurrency: want more than 0")
	}
	if len(c.Rates) == 0 {
		for _, rho := range f.rhos {
			c.Rates = append(c.Rates, rho*c.Capacity())
		}
	}
	return c.Check()
}

// study takes from a study what no flag says.
func (f *simulation) study(cmd *cobra.Command, name string) error {
	s, err := study.Find(name, engine.Described())
	if err != nil {
		return err
	}
	given := cmd.Flags().Changed
	if s.Load.Replay != nil {
		return fmt.Errorf("study %s replays a log: what is simulated is an open loop, of rates", s.Name)
	}
	if s.Load.Closed() {
		return fmt.Errorf("study %s is a closed loop, of users: what is simulated is an open one, of rates", s.Name)
	}
	if err := f.studyServers(given, s); err != nil {
		return err
	}
	c := &f.config
	if !given("rates") && !given("rho") {
		c.Rates = s.Load.Rates
		if len(s.Load.Fractions) > 0 { // of what the simulated servers can serve
			f.rhos = s.Load.Fractions
		}
	}
	if !given("schedulers") {
		c.Schedulers = nil
		for _, p := range s.Competitors {
			if p.Engine == "imbang" && !slices.Contains(c.Schedulers, p.Scheduler) {
				c.Schedulers = append(c.Schedulers, p.Scheduler)
			}
		}
	}
	if !given("repeats") {
		c.Repeats = s.Repeats.Least
	}
	if !given("connections") {
		c.Connections = cmp.Or(s.Load.Connections, int(s.Load.Duration.Seconds()*f.fastest(s.Load)))
	}
	if !given("patience") {
		c.Patience = s.Load.Timeout
	}
	if !given("arrivals") {
		f.arrivals = s.Load.Arrivals[0]
	}
	if !given("clients") {
		c.Clients = s.ClientAddresses
	}
	if !given("destinations") {
		c.Destinations = s.VirtualAddresses
	}
	if !given("zipf") && s.VirtualAddresses > 1 {
		c.DestinationZipf = s.Load.DestinationZipf
	}
	return nil
}

// fastest is the highest rate of a study's open loop.
func (f *simulation) fastest(l study.Load) float64 {
	if len(l.Rates) > 0 {
		return slices.Max(l.Rates)
	}
	total := 0.0
	for i := range f.servers {
		total += f.speeds[i%len(f.speeds)]
	}
	return slices.Max(l.Fractions) * total * float64(f.config.Concurrency) / f.config.Service.Seconds()
}

// studyServers takes the farm: of servers of a stated capacity all, of others
// how many there are and their weights.
func (f *simulation) studyServers(given func(string) bool, s *study.Study) error {
	c, first := &f.config, s.Servers[0]
	if first.Kind != study.Model && !given("service") {
		return fmt.Errorf("study %s does not say how fast a server is: say it, such as --service 10ms --concurrency 32, "+
			"which is 3200 connections/s for each server", s.Name)
	}
	if !given("servers") {
		f.servers = len(s.Servers)
	}
	if !given("weights") {
		f.weights = nil
		for _, w := range s.Weights[0].Weights {
			f.weights = append(f.weights, strconv.Itoa(w))
		}
	}
	if first.Kind != study.Model {
		return nil
	}
	if !given("speeds") {
		f.speeds = nil
		for _, server := range s.Servers {
			f.speeds = append(f.speeds, server.Speed)
		}
	}
	if !given("service") {
		c.Service = first.Service
	}
	if !given("concurrency") {
		c.Concurrency = first.Concurrency
	}
	if !given("backlog") && first.Backlog > 0 { // any number may wait without one, as without the flag
		c.Backlog = first.Backlog
	}
	if !given("law") {
		f.distribution = first.Distribution
	}
	return nil
}

// makeServers deals speeds and weights in turns.
func (f *simulation) makeServers() error {
	weights, err := deal(f.servers, simulate.MaxServers, f.speeds, f.weights)
	if err != nil {
		return err
	}
	for i, w := range weights {
		f.config.Servers = append(f.config.Servers, simulate.Server{Speed: f.speeds[i%len(f.speeds)], Weight: w})
	}
	return nil
}
