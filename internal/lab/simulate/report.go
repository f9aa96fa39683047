// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is a scheduler at a rate, over all repeats.
type Row struct {
	Rate        float64  `json:"rate"`
	Rho         float64  `json:"rho"` // of the capacity
	Scheduler   string   `json:"scheduler"`
	MeanMS      Estimate `json:"mean_ms"` // of the response time
	P50MS       Estimate `json:"p50_ms"`
	P95MS       Estimate `json:"p95_ms"`
	P99MS       Estimate `json:"p99_ms"`
	WaitMS      Estimate `json:"wait_ms"` // mean
	LossShare   Estimate `json:"loss_share"`
	Utilisation Estimate `json:"utilisation"`
	Imbalance   Estimate `json:"imbalance"`
	Jain        Estimate `json:"jain"`
	HitRatio    Estimate `json:"hit_ratio"`
}

// column is a figure of the table.
type column struct {
	title  string
	digits int // that are shown
	scale  float64
	of     func(*Outcome) float64
	in     func(*Row) *Estimate
}

var columns = []column{
	{"mean ms", 4, 1, func(o *Outcome) float64 { return o.Response.MeanMS }, func(r *Row) *Estimate { return &r.MeanMS }},
	{"p50", 4, 1, func(o *Outcome) float64 { return o.Response.P50MS }, func(r *Row) *Estimate { return &r.P50MS }},
	{"p95", 4, 1, func(o *Outcome) float64 { return o.Response.P95MS }, func(r *Row) *Estimate { return &r.P95MS }},
	{"p99", 4, 1, func(o *Outcome) float64 { return o.Response.P99MS }, func(r *Row) *Estimate { return &r.P99MS }},
	{"wait ms", 4, 1, func(o *Outcome) float64 { return o.Waiting.MeanMS }, func(r *Row) *Estimate { return &r.WaitMS }},
	{"lost %", 3, 100, lossShare, func(r *Row) *Estimate { return &r.LossShare }},
	{"busy %", 3, 100, func(o *Outcome) float64 { return o.Utilisation }, func(r *Row) *Estimate { return &r.Utilisation }},
	{"max/mean", 3, 1, func(o *Outcome) float64 { return o.Imbalance }, func(r *Row) *Estimate { return &r.Imbalance }},
	{"Jain", 3, 1, func(o *Outcome) float64 { return o.Jain }, func(r *Row) *Estimate { return &r.Jain }},
	{"at hand %", 3, 100, func(o *Outcome) float64 { return o.HitRatio }, func(r *Row) *Estimate { return &r.HitRatio }},
}

func lossShare(o *Outcome) float64 {
	return float64(o.Loss.Total()) / float64(max(1, o.Connections))
}

// Rows are the outcomes by rate and scheduler, in the order of the
// configuration.
func (r *Results) Rows() []Row {
	var rows []Row
	for i := 0; i < len(r.Outcomes); i += r.Config.Repeats {
		repeats := r.Outcomes[i : i+r.Config.Repeats]
		row := Row{Rate: repeats[0].Rate, Rho: repeats[0].Rate / r.Config.Capacity(), Scheduler: repeats[0].Scheduler}
		for _, c := range columns {
			samples := make([]float64, len(repeats))
			for k := range repeats {
				samples[k] = c.of(&repeats[k])
			}
			*c.in(&row) = estimate(samples)
		}
		rows = append(rows, row)
	}
	return rows
}

// Text prints what was simulated, a table for each rate and what is to be
// known of it.
func (r *Results) Text(w io.Writer) error {
	fmt.Fprintln(w, r.Config.Describe())
	rows := r.Rows()
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && rows[i+n].Rate == rows[i].Rate {
			n++
		}
		r.table(w, rows[i:i+n])
		i += n
	}
	for _, note := range r.Notes() {
		fmt.Fprintln(w, "-", note)
	}
	_, err := fmt.Fprintf(w, "%d connections simulated in %s: %.0f/s\n",
		len(r.Outcomes)*r.Config.Connections, time.Duration(r.WallSeconds*1e9).Round(time.Second/10), r.ConnectionsPerSecond)
	return err
}

// shown are the columns that say something of this run.
func (r *Results) shown() []column {
	return slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return c.title == "at hand %" && r.Config.Cache == 0
	})
}

func (r *Results) table(w io.Writer, rows []Row) {
	fmt.Fprintf(w, "\n%.6g connections/s, %.3g of the capacity\n", rows[0].Rate, rows[0].Rho)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "scheduler\t")
	for _, c := range r.shown() {
		fmt.Fprint(t, c.title, "\t")
	}
	fmt.Fprintln(t)
	for _, row := range rows {
		fmt.Fprint(t, row.Scheduler, "\t")
		for _, c := range r.shown() {
			e := c.in(&row)
			fmt.Fprint(t, figure(e.Mean*c.scale, c.digits))
			if e.HalfWidth != 0 {
				fmt.Fprint(t, " ±", figure(e.HalfWidth*c.scale, 2))
			}
			fmt.Fprint(t, "\t")
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if causes := lossCauses(r.Outcomes, rows[0].Rate); causes != "" {
		fmt.Fprintln(w, causes)
	}
}

// figure writes a number with so many significant digits, and never with an
// exponent.
func figure(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	behind := digits - 1 - int(math.Floor(math.Log10(math.Abs(x))))
	return strconv.FormatFloat(x, 'f', min(max(behind, 0), 6), 64)
}

// lossCauses says why connections were lost at a rate.
func lossCauses(all []Outcome, rate float64) string {
	var lines []string
	sums := map[string]Loss{}
	var order []string
	for _, o := range all {
		if o.Rate != rate || o.Loss.Total() == 0 {
			continue
		}
		s, ok := sums[o.Scheduler]
		if !ok {
			order = append(order, o.Scheduler)
		}
		sums[o.Scheduler] = Loss{s.Director + o.Loss.Director, s.Refused + o.Loss.Refused, s.GaveUp + o.Loss.GaveUp}
	}
	for _, name := range order {
		l := sums[name]
		lines = append(lines, fmt.Sprintf("%s %d refused by servers, %d given up by clients, %d without a server", name, l.Refused, l.GaveUp, l.Director))
	}
	if lines == nil {
		return ""
	}
	return "lost: " + strings.Join(lines, "; ")
}

// Describe says in a few lines what is simulated.
func (c *Config) Describe() string {
	var b strings.Builder
	each := "one connection"
	if c.Concurrency > 1 {
		each = fmt.Sprintf("%d connections", c.Concurrency)
	}
	fmt.Fprintf(&b, "%d servers, each serving %s at a time", len(c.Servers), each)
	if c.Backlog >= 0 {
		fmt.Fprintf(&b, " with room for %d to wait", c.Backlog)
	}
	fmt.Fprintf(&b, "; service %s, mean %s at speed 1", c.Distribution, c.Service)
	if c.Cache > 0 {
		fmt.Fprintf(&b, ", %g of that for the %d destinations at hand", c.HitShare, c.Cache)
	}
	fmt.Fprintf(&b, "\nspeeds %s; weights %s; together at most %.6g connections/s\n",
		several(c.Servers, func(s Server) float64 { return s.Speed }),
		several(c.Servers, func(s Server) float64 { return float64(s.Weight) }), c.Capacity())
	fmt.Fprintf(&b, "arrivals %s", c.Arrivals)
	fmt.Fprintf(&b, " from %d clients (Zipf %g) to %d destinations (Zipf %g)", c.Clients, c.ClientZipf, c.Destinations, c.DestinationZipf)
	if c.Patience > 0 {
		fmt.Fprintf(&b, ", who give up after %s", c.Patience)
	}
	repeats := "once"
	if c.Repeats > 1 {
		repeats = fmt.Sprintf("%d times", c.Repeats)
	}
	fmt.Fprintf(&b, "\n%d connections %s, the first %g %% not counted; seed %d", c.Connections, repeats, 100*c.Warmup, c.Seed)
	return b.String()
}

// several writes a figure of all servers: how many have which value.
func several(servers []Server, of func(Server) float64) string {
	count := map[float64]int{}
	var order []float64
	for _, s := range servers {
		v := of(s)
		if count[v] == 0 {
			order = append(order, v)
		}
		count[v]++
	}
	var parts []string
	for _, v := range order[:min(len(order), 8)] {
		parts = append(parts, fmt.Sprintf("%g (%d)", v, count[v]))
	}
	if len(order) > 8 {
		parts = append(parts, "...")
	}
	return strings.Join(parts, ", ")
}

// Notes are what a reader of the tables must know.
func (r *Results) Notes() []string {
	var notes []string
	if r.Config.Repeats > 1 {
		notes = append(notes, "± is the 95 % confidence interval of the mean over the repeats.")
	} else {
		notes = append(notes, "One repeat has no confidence interval: use --repeats.")
	}
	shortest := r.Outcomes[0].VirtualSeconds
	for _, o := range r.Outcomes {
		shortest = min(shortest, o.VirtualSeconds*float64(o.All)/float64(max(1, o.Connections)))
	}
	if shortest < longest.Seconds() {
		notes = append(notes, fmt.Sprintf("The shortest run is %.3g s of virtual time. A connection that is over counts as inactive for %.0f s, "+
			"so to lc, wlc, lblc and lblcr this is a director that was just started: simulate more connections.", shortest, longest.Seconds()))
	}
	for _, rate := range r.Config.Rates {
		if rho := rate / r.Config.Capacity(); rho >= 1 && r.Config.Backlog < 0 && r.Config.Patience == 0 && r.Config.Cache == 0 {
			notes = append(notes, fmt.Sprintf("%.6g connections/s are more than the servers can serve, and nothing limits the queues: "+
				"response times grow with the number of connections.", rate))
		}
	}
	return notes
}

// Report is the results with what the tables make of them.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
	*Results
}

// Report is what is printed as JSON.
func (r *Results) Report() Report { return Report{r.Rows(), r.Notes(), r} }
