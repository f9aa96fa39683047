// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// httperfCauses are the counts of httperf's two lines of errors, in order.
var httperfCauses = []string{
	"client-timo", "socket-timo", "connrefused", "connreset", "fd-unavail", "addrunavail", "ftab-full", "other",
}

// parseHttperf reads a run of httperf 0.8 or 0.9. Its KB are 1024 bytes. Its
// reply time has two parts: response, from the first byte of the request to
// the first of the reply, and transfer, to the last byte of the reply.
func parseHttperf(b *block, r *Result) error {
	r.Errors, r.Statuses = map[string]int64{}, map[string]int64{}
	h := httperf{r: r}
	if err := b.read(h.fields()); err != nil {
		return err
	}
	if pattern(httperfHead).MatchString(b.lines[0].text) {
		if err := h.command(b.lines[0].text); err != nil {
			return fmt.Errorf("%d: %w", b.lines[0].number, err)
		}
	}
	h.check()
	return nil
}

// httperf is a run of it that is being read.
type httperf struct {
	r       *Result
	request meanSize
	reply   meanSize // header and content: Net I/O leaves footers out
	errors  int64    // as its own total says
}

// meanSize is a sum of printed means, in bytes: the true one is between value - under and
// value + over.
type meanSize struct{ value, under, over float64 }

// add adds a mean. httperf 0.9 cuts off the decimals, and prints 375.0 for 375.9.
func (m *meanSize) add(g groups, i int) {
	m.value += g.value(i)
	if strings.HasSuffix(g[i], ".0") {
		m.over++
		return
	}
	m.under, m.over = m.under+0.05, m.over+0.05
}

func (h *httperf) fields() []field {
	r := h.r
	return []field{
		{"Total:", form("Total: connections @ requests @ replies @ test-duration # s"), true, func(g groups) {
			r.Connections, r.Requests, r.Replies, r.Seconds = g.count(1), g.count(2), g.counted(3), g.value(4)
		}},
		{"Connection rate:", form("Connection rate: # conn/s (# ms/conn, <=@ concurrent connections)"), true, func(g groups) {
			r.ConnectionRate = g.float(1)
		}},
		{"Connection time [ms]:", form("Connection time [ms]: min # avg # max # median # stddev #"), true, func(g groups) {
			for i, key := range []string{TimeConnMin, TimeConnMean, TimeConnMax, TimeConnMedian} {
				r.set(key, g.float(i+1))
			}
		}},
		{"Connection time [ms]:", form("Connection time [ms]: connect #"), true, func(g groups) { r.set(TimeConnect, g.float(1)) }},
		{"Request rate:", form("Request rate: # req/s (# ms/req)"), true, func(g groups) { r.RequestRate = g.float(1) }},
		{"Request size [B]:", form("Request size [B]: #"), true, func(g groups) { h.request.add(g, 1) }},
		{"Reply rate [replies/s]:", form("Reply rate [replies/s]: min # avg # max # stddev # (@ samples)"), true, func(g groups) {
			r.RateSamples = g.count(5)
		}},
		{"Reply time [ms]:", form("Reply time [ms]: response # transfer #"), true, func(g groups) {
			r.ResponseIs = "from the first byte of the request to the first byte of the reply"
			response, transfer := g.float(1), g.float(2)
			if r.Replies == 0 || response == nil || transfer == nil {
				return // printed as 0.0, and means nothing
			}
			whole := math.Round(10*(*response+*transfer)) / 10
			r.ResponseMS = response
			r.set(TimeTransfer, transfer)
			r.set(TimeReply, &whole)
		}},
		{"Reply size [B]:", form("Reply size [B]: header # content # footer # (total #)"), true, func(g groups) {
			h.reply.add(g, 1)
			h.reply.add(g, 2)
		}},
		{"Reply status:", form("Reply status: 1xx=@ 2xx=@ 3xx=@ 4xx=@ 5xx=@"), true, func(g groups) {
			for i := 1; i <= 5; i++ {
				r.Statuses[strconv.Itoa(i)+"xx"] = g.counted(i)
			}
		}},
		{"CPU time [s]:", form("CPU time [s]: user # system # (user #% system #% total #%)"), true, func(g groups) {
			if user, system, total := g.float(3), g.float(4), g.float(5); user != nil && system != nil && total != nil {
				r.CPU = &CPU{User: *user, System: *system, Total: *total}
			}
		}},
		{"Net I/O:", form("Net I/O: # KB/s (#*10^6 bps)"), true, func(g groups) { r.ThroughputKBs = g.float(1) }},
		{"Errors: total", form("Errors: total @ client-timo @ socket-timo @ connrefused @ connreset @"), true, func(g groups) {
			h.errors = g.counted(1)
			h.causes(g[2:], httperfCauses[:4])
		}},
		{"Errors: fd-unavail", form("Errors: fd-unavail @ addrunavail @ ftab-full @ other @"), true, func(g groups) {
			h.causes(g[1:], httperfCauses[4:])
		}},
	}
}

func (h *httperf) causes(g groups, names []string) {
	for i, name := range names {
		h.r.Errors[name] = g.counted(i)
	}
}

const option = `^--?([a-z_-]+)(?:=(.*))?$`

// command reads what httperf repeats of its command line. Options that do not
// matter here are stepped over.
func (h *httperf) command(text string) error {
	r, server, port, uri := h.r, "", "", ""
	for _, word := range strings.Fields(text)[1:] {
		m := pattern(option).FindStringSubmatch(word)
		if m == nil {
			continue
		}
		var err error
		switch value := m[2]; m[1] {
		case "server":
			server = value
		case "port":
			port = ":" + value
		case "uri":
			uri = value
		case "client":
			r.Asked.Client = value
		case "rate":
			r.Asked.Rate, err = positive(value)
		case "period":
			r.Asked.Rate = meanRate(value)
		case "timeout":
			r.Asked.TimeoutS, err = positive(value)
		case "num-conns":
			r.Asked.Connections, err = whole(value)
		case "num-calls":
			r.Asked.Calls, err = whole(value)
		case "wsess", "wsesslog", "wsesspage":
			r.Asked.Sessions = true
		}
		if err != nil {
			return fmt.Errorf("%q: %w: was the file edited?", word, err)
		}
	}
	r.Target = server + port + uri
	return nil
}

// meanRate is the rate of exponential periods; other forms have none of their
// own.
func meanRate(period string) *float64 {
	if mean, err := positive(strings.TrimPrefix(period, "e")); err == nil && strings.HasPrefix(period, "e") {
		rate := 1 / *mean
		return &rate
	}
	return nil
}

func positive(s string) (*float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 1e-9 && v < 1e9) {
		return nil, fmt.Errorf("want a number above 0")
	}
	return &v, nil
}

func whole(s string) (*int64, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 1 || v > 1e12 {
		return nil, fmt.Errorf("want a whole number above 0")
	}
	return &v, nil
}

// check compares the run's figures with each other.
func (h *httperf) check() {
	r := h.r
	if r.Replies == 0 { // printed as 0.0, for no connection was a success
		for _, key := range []string{TimeConnMin, TimeConnMean, TimeConnMax, TimeConnMedian} {
			delete(r.TimesMS, key)
		}
	}
	r.checkRate("connections", *r.Connections, r.ConnectionRate, 0.001, 0.05)
	r.checkRate("requests", *r.Requests, r.RequestRate, 0.001, 0.05)
	var statuses int64
	for _, n := range r.Statuses {
		statuses += n
	}
	if statuses != r.Replies {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%d replies, but statuses of %d", r.Replies, statuses))
	}
	if sum := r.lost(); sum != h.errors {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("errors of %d in total, but causes of %d", h.errors, sum))
	}
	h.checkNet()
}

// checkNet compares Net I/O with counts and sizes: all of them are of requests
// sent and of whole replies.
func (h *httperf) checkNet() {
	r := h.r
	if r.ThroughputKBs == nil || r.Seconds < 0.01 {
		return
	}
	requests, replies := float64(*r.Requests), float64(r.Replies)
	rate := func(request, reply float64) float64 { return (requests*request + replies*reply) / 1024 / r.Seconds }
	computed := rate(h.request.value, h.reply.value)
	digits := 0.051 + computed*0.0005/r.Seconds // of Net I/O and of the duration
	least, most := computed-digits-rate(h.request.under, h.reply.under), computed+digits+rate(h.request.over, h.reply.over)
	if *r.ThroughputKBs < least || *r.ThroughputKBs > most {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("its counts and sizes make %.1f KB/s, not %g", computed, *r.ThroughputKBs))
	}
}
