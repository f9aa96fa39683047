// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/command"
	"imbang/internal/lab/progress"
	"imbang/internal/lab/record"
	"imbang/internal/lab/run"
	"imbang/internal/lab/study"
	"imbang/internal/model"
)

// study is the text of the study that replays a log.
func (f *replay) study(log record.Replay, weights []int32) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	addresses := min(log.Clients, study.MaxClientAddresses)
	line("name: replay")
	line("title: %s", quote("The traffic of "+filepath.Base(log.Log)))
	line("hypothesis: One scheduler serves this traffic better than the others.")
	line("")
	line("cluster:")
	line("  client_namespaces: %d", max(min(2, addresses), (addresses+3999)/4000))
	line("  client_addresses: %d", addresses)
	line("  servers:")
	service := f.farm.time(log.Rate() * slices.Max(f.replay.Speeds))
	for i := range f.farm.servers {
		line("    - {kind: model, page: 1 KB, law: %s, service: %v, concurrency: %d, backlog: %d, speed: %g}",
			f.farm.distribution, service, f.farm.concurrency, f.farm.backlog, f.farm.speeds[i%len(f.farm.speeds)])
	}
	line("  weights: {given: %s}", flow(weights))
	line("")
	line("load:")
	line("  replay:")
	line("    log: %s", quote(log.Log))
	line("    speeds: %s", flow(f.replay.Speeds))
	if f.replay.From > 0 {
		line("    from: %v", f.replay.From)
	}
	if f.replay.Until > 0 {
		line("    until: %v", f.replay.Until)
	}
	if f.replay.Uniform {
		line("    within_second: uniform")
	}
	line("    methods: %s", flow(f.replay.Methods))
	line("  timeout: %v", f.timeout)
	line("  requests_per_connection: %d", f.each)
	line("")
	line("competitors:")
	line("  - {engine: imbang, schedulers: %s}", flow(usualSchedulers(weights)))
	line("repeats: {least: %d}", max(1, f.run.repeats))
	return b.String()
}

// usualSchedulers are those that can differ for one destination.
func usualSchedulers(weights []int32) []string {
	if slices.Min(weights) == slices.Max(weights) {
		return []string{"rr", "lc", "sed", "nq", "twos", "sh"}
	}
	return []string{"wrr", "wlc", "sed", "nq", "twos", "sh"}
}

// quote is a text of YAML.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// flow is a list of YAML.
func flow[T any](list []T) string {
	var words []string
	for _, x := range list {
		words = append(words, fmt.Sprint(x))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// quickly is about how long a quick replay may take.
const quickly = 50 * time.Second

// shorten makes the cells of a quick run as long as there is time for, and a
// second at least.
func shorten(c *run.Config) {
	each := quickly/time.Duration(max(1, c.Plan.Cells)) - progress.Overhead
	c.Plan.Duration = max(time.Second, each.Round(100*time.Millisecond))
}

// longest is how long a run may be expected to take: beyond that somebody
// mistook the log's length.
const longest = 24 * time.Hour

// announce says what is going to be done and how long it takes, and refuses
// what nobody will wait for.
func (f *replay) announce(w io.Writer, c *run.Config) error {
	load, rest := cost(c.Plan)
	factors := fmt.Sprintf("%d competitors x %d blocks x %s", len(c.Plan.Competitors), c.Plan.Repeats, cells(c.Plan))
	if load+rest > longest {
		return command.Usage(fmt.Errorf("%s: %s take %s: give %s, --from and --until for a part of the log, or --quick",
			c.Log.Summary.Log, factors, words(load+rest), cmp.Or(f.faster(load, rest, time.Hour), "fewer --repeats")))
	}
	for _, l := range c.Log.Summary.Lines() {
		fmt.Fprintln(w, l)
	}
	for _, l := range f.caveats(c) {
		fmt.Fprintln(w, l)
	}
	if faster := f.faster(load, rest, 5*time.Minute); faster != "" && load+rest > 10*time.Minute {
		factors += " (" + faster + ")"
	}
	fmt.Fprintf(w, "%s: about %s\n", factors, words(load+rest))
	return nil
}

// cost is what a whole run takes: its load, and all else.
func cost(p record.Plan) (load, rest time.Duration) {
	for _, c := range p.Conditions {
		load += run.Expected(p, record.Cell{Condition: c})
	}
	n := len(p.Competitors) * p.Repeats
	return load * time.Duration(n), time.Duration(n*len(p.Conditions)) * progress.Overhead
}

// cells is the length of each cell of a competitor.
func cells(p record.Plan) string {
	var list []string
	for _, c := range p.Conditions {
		list = append(list, run.Expected(p, record.Cell{Condition: c}).Round(100*time.Millisecond).String())
	}
	if len(list) == 1 {
		return list[0]
	}
	return "(" + strings.Join(list, " + ") + ")"
}

// faster is the --speed that makes a run as short as wanted, empty if none
// does.
func (f *replay) faster(load, rest, wanted time.Duration) string {
	if wanted <= rest {
		return ""
	}
	factor := float64(load) / float64(wanted-rest)
	var speeds []string
	for _, s := range f.replay.Speeds {
		speeds = append(speeds, strconv.FormatFloat(upwards(s*factor), 'f', -1, 64))
	}
	return fmt.Sprintf("--speed %s for %s", strings.Join(speeds, ","), words(wanted))
}

// upwards rounds up to two digits.
func upwards(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Ceil(x/unit) * unit
}

// words is a time as people say it.
func words(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 2*longest:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// byClient reports whether a scheduler chooses by the client's address: one of
// Linux's, or another engine's.
func byClient(scheduler string) bool {
	s, _ := model.SchedulerNamed(scheduler)
	return s.ByClient || slices.Contains([]string{"source", "ip_hash", "hash"}, scheduler)
}

// caveats say what the figures will not mean.
func (f *replay) caveats(c *run.Config) (list []string) {
	log, s := c.Log.Summary, c.Study
	if n := s.ClientAddresses; log.Clients > n {
		list = append(list, fmt.Sprintf("the log has %d clients and the lab %d addresses: up to %d clients share one", log.Clients, n, (log.Clients+n-1)/n))
	}
	if log.Clients == 1 {
		for _, p := range c.Plan.Competitors {
			if byClient(p.Scheduler) {
				list = append(list, fmt.Sprintf("the log has one client: %s, which chooses by the client, sends all of it to one server", p.Name))
			}
		}
	}
	service := s.Servers[0].Service
	for _, cond := range c.Plan.Conditions {
		rate := log.Rate() * cond.Speed
		busy := rate * service.Seconds() / f.farm.places()
		line := fmt.Sprintf("at speed %g: %s requests/s, of which the servers (%s of mean %v, %d at a time each) are %.0f %% busy",
			cond.Speed, record.Figure(rate), f.farm.distribution, service, f.farm.concurrency, 100*busy)
		switch {
		case busy < 0.1:
			line += "; idle servers serve alike: give a higher --speed, a longer --service or a lower --concurrency"
		case busy > 1:
			line += ", which is more than they can serve: give a shorter --service"
		}
		list = append(list, line)
	}
	return list
}
