// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Outcome is what one run of one scheduler came to.
type Outcome struct {
	Scheduler string  `json:"scheduler"`
	Rate      float64 `json:"rate"`
	Repeat    int     `json:"repeat"`
	Seed      uint64  `json:"seed"`

	Connections int   `json:"connections"` // counted: without the warm-up
	Loss        Loss  `json:"loss"`
	Response    Times `json:"response"` // from the SYN to the end of the service
	Waiting     Times `json:"waiting"`  // until the service began

	Utilisation float64 `json:"utilisation"`
	// Of active connections divided by speed, over the servers, on average
	// over time: the most of a server by the mean, and Jain's index, which is
	// 1 when all are alike and 1/n when one has all.
	Imbalance float64 `json:"imbalance"`
	Jain      float64 `json:"jain"`
	// ServedJain is Jain's index of the connections served, by speed.
	ServedJain float64 `json:"served_jain"`
	// HitRatio is how often a server had the destination at hand.
	HitRatio float64 `json:"hit_ratio"`

	Active   float64 `json:"active"` // of all servers, on average over time
	Inactive float64 `json:"inactive"`

	PerServer []ServerOutcome `json:"per_server"`
	Series    []Look          `json:"series"`

	VirtualSeconds float64 `json:"virtual_seconds"` // of arrivals that count
	WallSeconds    float64 `json:"wall_seconds"`    // all in all, but for loading
	All            int     `json:"all_connections"` // with the warm-up
}

// Loss is connections that were not served, by cause.
type Loss struct {
	Director int `json:"director"` // no server could be chosen, or the table was full
	Refused  int `json:"refused"`  // the server's backlog was full
	GaveUp   int `json:"gave_up"`  // the client's patience ended
}

// Total is all of them.
func (l Loss) Total() int { return l.Director + l.Refused + l.GaveUp }

// Times is a distribution of times.
type Times struct {
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P95MS  float64 `json:"p95_ms"`
	P99MS  float64 `json:"p99_ms"`
	MaxMS  float64 `json:"max_ms"`
	HDR    string  `json:"hdr"` // HdrHistogram's V2 compressed encoding, of ns
}

// ServerOutcome is a server's part.
type ServerOutcome struct {
	Served      uint64  `json:"served"`
	Utilisation float64 `json:"utilisation"`
	Active      float64 `json:"active"` // on average over time
	Inactive    float64 `json:"inactive"`
	Peak        uint32  `json:"peak"` // active
}

// Look is the loads at a time, over the servers.
type Look struct {
	AtSeconds float64 `json:"at_s"`
	Mean      float64 `json:"mean"` // active connections by speed
	Max       float64 `json:"max"`
	Jain      float64 `json:"jain"`
	Inactive  float64 `json:"inactive"` // mean
}

func newLook(at int64, loads []float64, inactives float64) Look {
	n := float64(len(loads))
	return Look{
		AtSeconds: float64(at) / 1e9, Mean: sum(loads) / n, Max: slices.Max(loads), Jain: jain(loads),
		Inactive: inactives / n,
	}
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// jain is Jain's index of fairness; 1 of nothing.
func jain(v []float64) float64 {
	total, squares := 0.0, 0.0
	for _, x := range v {
		total += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return total * total / (float64(len(v)) * squares)
}

// outcome puts together what was counted.
func (w *world) outcome() (Outcome, error) {
	t := &w.tally
	window := float64(max(1, w.end-w.begin))
	o := Outcome{
		Connections: t.Connections, Loss: t.Loss, All: w.opened, Series: t.series, VirtualSeconds: window / 1e9,
	}
	var err error
	if o.Response, err = newTimes(t.response, t.responses); err != nil {
		return o, err
	}
	if o.Waiting, err = newTimes(t.waiting, t.waits); err != nil {
		return o, err
	}
	if t.looks > 0 {
		o.HitRatio = float64(t.hits) / float64(t.looks)
	}
	w.perServer(&o, window)
	return o, nil
}

func newTimes(h *hdrhistogram.Histogram, total float64) (Times, error) {
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil || h.TotalCount() == 0 {
		return Times{}, err
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return Times{
		MeanMS: total / float64(h.TotalCount()) / 1e6, P50MS: at(50), P95MS: at(95), P99MS: at(99),
		MaxMS: float64(h.Max()) / 1e6, HDR: string(enc),
	}, nil
}

func (w *world) perServer(o *Outcome, window float64) {
	looks := float64(max(1, len(w.tally.series)))
	served := make([]float64, len(w.servers))
	for i := range w.servers {
		s, l := &w.servers[i], w.tally.loads[i]
		one := ServerOutcome{
			Served: s.served, Utilisation: float64(s.work) / window / float64(w.c.Concurrency),
			Active: float64(l.active) / looks, Inactive: float64(l.inactive) / looks, Peak: l.peak,
		}
		o.PerServer = append(o.PerServer, one)
		o.Utilisation += one.Utilisation / float64(len(w.servers))
		o.Active += one.Active
		o.Inactive += one.Inactive
		served[i] = float64(s.served) / s.speed
	}
	o.ServedJain = jain(served)
	weighted := 0
	for _, l := range w.tally.series {
		if l.Mean > 0 {
			o.Imbalance += l.Max / l.Mean
			o.Jain += l.Jain
			weighted++
		}
	}
	if weighted > 0 {
		o.Imbalance /= float64(weighted)
		o.Jain /= float64(weighted)
	}
}
