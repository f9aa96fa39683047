// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"imbang/internal/lab/stats"
)

// Confidence of the medians' intervals.
const confidence = 0.95

// disturbed is how late a ping is sent in a trial that the machine disturbed [ms].
const disturbed = 20

// Report is what a study found.
type Report struct {
	Environment Environment  `json:"environment"`
	Trials      int          `json:"trials"`  // stored
	Errors      int          `json:"errors"`  // of these: without a measurement
	Planned     int          `json:"planned"` // altogether
	Published   float64      `json:"published_outage_ms"`
	Cells       []CellReport `json:"cells"`
	Targets     []Target     `json:"targets"`
}

// Figure is one of all trials of a cell.
type Figure struct {
	stats.Summary
	Interval stats.Interval `json:"interval"` // that holds the median
}

// CellReport is what trials of a cell came to. Counts are of all of them together.
type CellReport struct {
	Cell
	Errors     []string `json:"errors,omitempty"` // of trials without a measurement
	Again      int      `json:"again,omitempty"`  // how often trials began again, also those without a measurement
	OutageMS   Figure   `json:"outage_ms"`
	GapMS      Figure   `json:"gap_ms"`
	TakeoverMS Figure   `json:"takeover_ms"` // of trials in which there was one
	Requests   int      `json:"requests"`
	Failed     int      `json:"failed"`
	Reset      int      `json:"reset"` // connections: of requests, long and idle ones
	Long       int      `json:"long"`
	LongBroken int      `json:"long_broken"`
	LongBytes  int64    `json:"long_bytes"`
	Idle       int      `json:"idle"`
	IdleLost   int      `json:"idle_lost"`
	Side       int      `json:"side,omitempty"` // opened on both sides of a partition
	SideLost   int      `json:"side_lost,omitempty"`
	ARPMS      Figure   `json:"arp_ms"`     // of trials in which neighbour tables were right in the end
	ARPWrong   int      `json:"arp_wrong"`  // trials in which they were not
	SettledMS  Figure   `json:"settled_ms"` // of trials with one master in the end, of faults that heal
	NotSettled int      `json:"not_settled"`
	NotMaster  int      `json:"not_master"` // trials in which the wrong director had the addresses in the end
	Disturbed  int      `json:"disturbed"`  // trials in which a ping was sent more than 20 ms late
}

// Target is one of the figures that a pair must reach.
type Target struct {
	Name   string  `json:"name"`
	AtMost float64 `json:"at_most"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`
	Of     int     `json:"of"` // trials, connections or requests; 0: not measured
	Met    bool    `json:"met"`
}

// unplanned are the faults that the targets of an outage are for.
var unplanned = []string{"everything", "freeze", "link"}

// Make makes the report of stored trials.
func Make(e Environment, trials []Trial) *Report {
	r := &Report{Environment: e, Trials: len(trials), Planned: len(e.Plan.Cells()) * e.Plan.Trials, Published: Published}
	for _, cell := range e.Plan.Cells() {
		r.Cells = append(r.Cells, cellReport(cell, trials))
	}
	for _, t := range trials {
		if t.Error != "" {
			r.Errors++
		}
	}
	r.Targets = targets(trials)
	return r
}

func cellReport(cell Cell, trials []Trial) CellReport {
	c := CellReport{Cell: cell}
	var outage, gap, takeover, arp, settled []float64
	for _, t := range trials {
		if t.Cell != cell {
			continue
		}
		c.Again += t.Again
		if t.Error != "" {
			c.Errors = append(c.Errors, t.Error)
			continue
		}
		outage, gap = append(outage, t.OutageMS), append(gap, t.GapMS)
		if t.TakeoverMS >= 0 {
			takeover = append(takeover, t.TakeoverMS)
		}
		c.Requests, c.Failed, c.Reset = c.Requests+t.Requests, c.Failed+t.Failed, c.Reset+t.resets()
		c.Long, c.LongBroken, c.LongBytes = c.Long+t.Long, c.LongBroken+t.LongBroken, c.LongBytes+t.LongBytes
		c.Idle, c.IdleLost = c.Idle+t.Idle, c.IdleLost+t.IdleLost
		c.Side, c.SideLost = c.Side+t.Side, c.SideLost+t.SideLost
		c.ARPWrong += collect(&arp, t.ARPMS)
		c.NotSettled += collect(&settled, t.SettledMS)
		if !t.Master {
			c.NotMaster++
		}
		if t.LateMS > disturbed {
			c.Disturbed++
		}
	}
	c.OutageMS, c.GapMS, c.TakeoverMS = figure(outage), figure(gap), figure(takeover)
	c.ARPMS, c.SettledMS = figure(arp), figure(settled)
	return c
}

// collect adds a time to samples if there is one, and counts one that did not come.
func collect(samples *[]float64, one *float64) (never int) {
	switch {
	case one == nil:
	case *one < 0:
		return 1
	default:
		*samples = append(*samples, *one)
	}
	return 0
}

func figure(samples []float64) (f Figure) {
	if len(samples) > 0 {
		f.Summary, f.Interval = stats.Summarize(samples), stats.MedianInterval(samples, confidence)
	}
	return f
}

// targets compares with what a pair must reach.
func targets(trials []Trial) (list []Target) {
	outages := func(variant string) (all []float64) {
		for _, t := range trials {
			if t.Error == "" && t.Variant == variant && slices.Contains(unplanned, t.Fault) {
				all = append(all, t.OutageMS)
			}
		}
		return all
	}
	add := func(name string, atMost float64, unit string, of int, value float64) {
		list = append(list, Target{name, atMost, unit, value, of, of > 0 && value <= atMost})
	}
	most, median := 0.0, 0.0
	slow, fast := outages("imbang@50ms"), outages("imbang@10ms")
	if len(slow) > 0 {
		most = slices.Max(slow)
	}
	if len(fast) > 0 {
		median = stats.Summarize(fast).Median
	}
	kinds := strings.Join(unplanned, ", ")
	add("longest outage at imbang@50ms: "+kinds, 250, "ms", len(slow), most)
	add("median outage at imbang@10ms: "+kinds, 40, "ms", len(fast), median)
	var connections, lost, requests, failed, resets, heals, slowly, stays, moved int
	for _, t := range trials {
		v, err := ParseVariant(t.Variant)
		if err != nil || t.Error != "" || v.Process != imbangProcess || v.NoSync {
			continue
		}
		connections, lost = connections+t.Long+t.Idle+t.Side, lost+t.LongBroken+t.IdleLost+t.SideLost
		if isPlanned(t.Fault) {
			requests, failed, resets = requests+t.Requests, failed+t.Failed, resets+t.resets()
		}
		if f, err := faultOf(t.Fault); err == nil && f.stays {
			stays, moved = stays+1, moved+t.Transitions
		}
		if t.ARPMS != nil && t.SettledMS != nil {
			heals++
			if within := ms(healed); min(*t.ARPMS, *t.SettledMS) < 0 || max(*t.ARPMS, *t.SettledMS) > within {
				slowly++
			}
		}
	}
	add("connections lost that were 100 ms old, or of a side of a partition, imbang with synchronization", 0, "connections", connections, float64(lost))
	add("requests that failed in planned moves, imbang with synchronization", 0, "requests", requests, float64(failed))
	add("connections reset in planned moves, imbang with synchronization", 0, "requests", requests, float64(resets))
	add("transitions while the daemon is killed and started, and in upgrades, imbang with synchronization", 0, "trials", stays, float64(moved))
	add("splits without one master and right neighbour tables within 2 s, imbang with synchronization", 0, "trials", heals, float64(slowly))
	return list
}

// String is a figure in a table: median, interval, and the greatest.
func (f Figure) String() string {
	if f.N == 0 {
		return "-"
	}
	switch {
	case f.N == 1:
		return fmt.Sprintf("%.0f", f.Median)
	case !f.Interval.Reaches(confidence):
		return fmt.Sprintf("%.0f, max %.0f", f.Median, f.Max)
	}
	return fmt.Sprintf("%.0f (%.0f to %.0f), max %.0f", f.Median, f.Interval.Low, f.Interval.High, f.Max)
}

// withNever is a figure with the number of trials in which it did not come.
func withNever(f Figure, never int) string {
	if never == 0 {
		return f.String()
	}
	return fmt.Sprintf("%s, never: %d", f, never)
}

// sides are the connections of a partition's sides.
func (c CellReport) sides() string {
	if c.Side == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", c.SideLost, c.Side)
}

// Text prints the report.
func (r *Report) Text(w io.Writer) error {
	e := r.Environment
	fmt.Fprintf(w, "Failover: %d of %d trials, %d without a measurement; %g requests/s, %d long and %d idle connections a trial\n",
		r.Trials, r.Planned, r.Errors, e.Plan.Rate, e.Plan.Long, e.Plan.Idle)
	fmt.Fprintf(w, "%s, Linux %s, %d CPUs (%s), imbang %s", e.Started.UTC().Format("2006-01-02 15:04 UTC"), e.Kernel, e.CPUs, e.CPU, e.Builds["imbang"].Version)
	if e.Keepalived != "" {
		fmt.Fprintf(w, ", keepalived %s", e.Keepalived)
	}
	fmt.Fprintf(w, "\n%s\n", e.directorsText())
	fmt.Fprintf(w, "Outage: pings lost or sent late behind a lost one x %v; published of another balancer, by lost pings: %.0f ms. Gap: the longest time between two answers of a\n"+
		"probe each %v. Neighbours: when clients' and servers' ARP or neighbour tables were right. In ms: median (the interval that holds it with %.0f %% where there are enough trials), greatest.\n",
		pingInterval, r.Published, e.Plan.Probe, 100*confidence)
	for _, fault := range e.Plan.Faults {
		fmt.Fprintf(w, "\n%s: %s\n", fault, FaultText(fault))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "variant\tfamily\tmethod\toutage\tgap\trequests failed\treset\tlong broken\tidle lost\tof sides\tneighbours\tone master\tnot master\tdisturbed\tbegun again\ttrials")
		for _, c := range r.Cells {
			if c.Fault == fault {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\t%d of %d\t%d of %d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", c.Variant, family(c.Family), c.Method, c.OutageMS, c.GapMS,
					c.Failed, c.Requests, c.Reset, c.LongBroken, c.Long, c.IdleLost, c.Idle, c.sides(), withNever(c.ARPMS, c.ARPWrong),
					withNever(c.SettledMS, c.NotSettled), c.NotMaster, c.Disturbed, c.Again, c.OutageMS.N)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "target\tat most\tmeasured\t")
	for _, one := range r.Targets {
		verdict := "missed"
		switch {
		case one.Of == 0:
			verdict = "not measured"
		case one.Met:
			verdict = "met"
		}
		fmt.Fprintf(t, "%s\t%g %s\t%g of %d\t%s\n", one.Name, one.AtMost, one.Unit, one.Value, one.Of, verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.errorText(w)
}

// directorsText says what the directors of a study are.
func (e Environment) directorsText() string {
	const advertises = " A variant says what moves the addresses, and how often it advertises."
	if e.UserModeLinux == "" {
		return "All directors forward by imbang's data plane." + advertises
	}
	return "Directors forward by imbang's data plane, in network namespaces; those of linux@ by the kernel's IPVS, in emulated machines\n" +
		"of one CPU each: User Mode Linux " + e.UserModeLinux + "." + advertises
}

// errorText lists why trials have no measurement.
func (r *Report) errorText(w io.Writer) error {
	for _, c := range r.Cells {
		for _, text := range c.Errors {
			if _, err := fmt.Fprintf(w, "no measurement: %s: %s\n", c.Cell, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Write makes the report of a directory, and stores its text there.
func Write(dir string) (*Report, error) {
	e, trials, err := Read(dir)
	if err != nil {
		return nil, err
	}
	r := Make(e, trials)
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ReportFile), []byte(b.String()), 0o644); err != nil {
		return nil, fmt.Errorf("store the report: %w", err)
	}
	return r, nil
}
