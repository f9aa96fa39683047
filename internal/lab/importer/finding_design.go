// SPDX-License-Identifier: Apache-2.0

package importer

import "fmt"

// Findings about the design: how much can such runs say?

const (
	shortSeconds = 10
	fewReplies   = 100
	wantSamples  = 30 // of httperf's reply rate, one each 5 s; its manual
)

func tooShort(r *Result) bool { return r.Seconds < shortSeconds }

func sayShort(about, all []*Result) string {
	text := fmt.Sprintf("%s lasted %s s, less than %d", subject(about, all), span(about, "%.1f", func(r *Result) float64 { return r.Seconds }), shortSeconds)
	var sampled, timed []*Result
	for _, r := range about {
		if r.RateSamples != nil {
			sampled = append(sampled, r)
		}
		if r.Asked.Connections != nil && r.Asked.Rate != nil && !r.Asked.Sessions && !stopped(r) {
			timed = append(timed, r)
		}
	}
	if len(sampled) > 0 {
		text += fmt.Sprintf("; httperf took %s of the %d samples of the reply rate that its manual wants",
			span(sampled, "%.0f", func(r *Result) float64 { return float64(*r.RateSamples) }), wantSamples)
	}
	if len(timed) > 0 {
		text += fmt.Sprintf("; what they asked for is begun within %s s, the rest is waiting",
			span(timed, "%.1f", func(r *Result) float64 { return float64(*r.Asked.Connections) / *r.Asked.Rate }))
	}
	return text + ": such figures are of the start and the end, not of a steady load."
}

func sayFewReplies(about, all []*Result) string {
	return fmt.Sprintf("%s had %s replies, fewer than %d: too few for a mean or a high percentile.", subject(about, all),
		span(about, "%.0f", func(r *Result) float64 { return float64(r.Replies) }), fewReplies)
}

func idleClients(r *Result) bool {
	return r.Asked.Concurrency != nil && r.Replies > 0 && *r.Asked.Concurrency > r.Replies
}

func sayIdleClients(about, all []*Result) string {
	return fmt.Sprintf("%s had %s clients for %s replies: some never got one, so the asked concurrency was not that of the load.",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(*r.Asked.Concurrency) }),
		span(about, "%.0f", func(r *Result) float64 { return float64(r.Replies) }))
}

// coarse: the digits that were printed are a tenth of the figure or more.
func coarse(r *Result) bool {
	digit := map[string]float64{AB: 1, Siege: 10}[r.Tool] // of ab's percentiles, of siege's times
	if v, ok := r.TimesMS[TimeMedian]; ok && r.Tool == AB {
		return v < 10*digit
	}
	return r.Tool == Siege && r.ResponseMS != nil && *r.ResponseMS < 10*digit
}

func sayCoarse(about, all []*Result) string {
	return fmt.Sprintf("%s took times of a few of the units that the tool prints (ab's table and percentiles 1 ms, siege's times 10 ms): "+
		"differences below 10 %% cannot be seen in them.", subject(about, all))
}

func sayClosedLoop(about, all []*Result) string {
	return fmt.Sprintf("%s: a closed loop (ab, siege, wrk), in which a client asks again only when it was answered, so a slower server is asked less, "+
		"and the waiting of those who would have come is in no response time.", subject(about, all))
}

// saySingle holds if no cell, or no file, was measured twice.
func saySingle(about, _ []*Result) string {
	times := map[any]int{}
	for _, r := range about {
		if key, ok := cellOf(r); ok {
			times[key]++
		} else {
			times[r.File]++
		}
	}
	for _, n := range times {
		if n > 1 {
			return ""
		}
	}
	if len(about) == 1 {
		return "One run: nothing says how far another one would have been from it."
	}
	return fmt.Sprintf("%d runs, each made once: nothing says how far two runs of the same would be apart, so no difference between them can be claimed.", len(about))
}
