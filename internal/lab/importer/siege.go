// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"
)

// siegeError begins siege's lines about one transaction that failed.
const siegeError = "[error] "

// siegeBody is the first line of siege's results, as text or as JSON.
func siegeBody(s string) bool {
	return strings.HasPrefix(s, "Transactions:") || pattern(siegeJSONBody).MatchString(s)
}

const siegeJSONBody = `^(?:\{\s*)?"transactions":`

// parseSiege reads a run of siege 2 to 4. Its MB are 1024 x 1024 bytes; version
// 2.6 wrote bytes instead, and 4.2 writes milliseconds where the others write
// seconds. JSON (-j) has no units: it is seconds and MB.
func parseSiege(b *block, r *Result) error {
	r.Errors = map[string]int64{}
	r.ResponseIs = "the mean of all transactions, connecting included"
	for i := range b.lines {
		b.lines[i].text = siegeText(b.lines[i].text)
	}
	s := siege{r: r, listed: map[string]int64{}}
	if err := b.read(s.fields()); err != nil {
		return err
	}
	for _, l := range b.lines {
		s.list(l.text)
		if strings.HasPrefix(l.text, siegeError) && strings.Contains(l.text, "Too many open files") {
			r.Errors["fd-unavail"]++
		}
	}
	s.finish()
	return nil
}

type siege struct {
	r      *Result
	listed map[string]int64 // replies by class, where siege lists each
	bytes  *float64         // per second
	failed int64
}

// siegeJSON are JSON's keys and the lines that say the same.
var siegeJSON = map[string]string{
	"transactions": "Transactions: %s hits", "availability": "Availability: %s %%", "elapsed_time": "Elapsed time: %s secs",
	"data_transferred": "Data transferred: %s MB", "response_time": "Response time: %s secs",
	"transaction_rate": "Transaction rate: %s trans/sec", "throughput": "Throughput: %s MB/sec", "concurrency": "Concurrency: %s",
	"successful_transactions": "Successful transactions: %s", "failed_transactions": "Failed transactions: %s",
	"longest_transaction": "Longest transaction: %s secs", "shortest_transaction": "Shortest transaction: %s secs",
}

const jsonLine = `^(?:\{\s*)?"([a-z_]+)":\s*([0-9.]+|-?nan|-?inf),?(?:\s*\})?$`

// siegeText is the line that says what a line of JSON says; others stay.
func siegeText(s string) string {
	if m := pattern(jsonLine).FindStringSubmatch(s); m != nil && siegeJSON[m[1]] != "" {
		return fmt.Sprintf(siegeJSON[m[1]], m[2])
	}
	return s
}

// With or without a unit: versions differ, seconds are meant unless it says ms.
const (
	siegeTime = `\s+` + num + `(?:\s+(secs|ms))?$`
	siegeHead = `(?i)^\*\* siege (\S+)$`
)

func (s *siege) fields() []field {
	r := s.r
	timed := func(label string, required bool, take func(*float64)) field {
		return field{label, pattern(`^` + label + siegeTime), required, func(g groups) { take(siegeMS(g)) }}
	}
	megabytes := func(label, suffix string, take func(*float64)) field {
		return field{label, pattern(`^` + label + `\s+` + num + `\s+(MB|bytes)` + suffix + `$`), true, func(g groups) {
			take(siegeBytes(g))
		}}
	}
	return []field{
		{"** SIEGE", pattern(siegeHead), false, func(g groups) { r.Version = g[1] }},
		{"** Siege", pattern(siegeHead), false, func(g groups) { r.Version = g[1] }},
		{"** Preparing", form("** Preparing @ concurrent users for battle."), false, func(g groups) { r.Asked.Concurrency = g.count(1) }},
		{"Transactions:", form("Transactions: @ hits"), true, func(g groups) { r.Replies = g.counted(1) }},
		{"Availability:", form("Availability: # %"), true, func(groups) {}},
		{"Elapsed time:", form("Elapsed time: # secs"), true, func(g groups) { r.Seconds = g.value(1) }},
		megabytes("Data transferred:", "", func(v *float64) { r.Received = v }),
		timed("Response time:", true, func(v *float64) { r.ResponseMS = v }),
		{"Transaction rate:", form("Transaction rate: # trans/sec"), true, func(g groups) { r.RequestRate = g.float(1) }},
		megabytes("Throughput:", "/sec", func(v *float64) { s.bytes = v }),
		{"Concurrency:", form("Concurrency: #"), true, func(groups) {}},
		{"Successful transactions:", form("Successful transactions: @"), true, func(g groups) { r.Successes = g.count(1) }},
		{"Failed transactions:", form("Failed transactions: @"), true, func(g groups) { s.failed = g.counted(1) }},
		timed("Longest transaction:", false, func(v *float64) { r.set(TimeMax, v) }),
		timed("Shortest transaction:", false, func(v *float64) { r.set(TimeMin, v) }),
	}
}

func siegeMS(g groups) *float64 {
	v := g.float(1)
	if v != nil && g[2] != "ms" {
		*v *= 1000
	}
	return v
}

func siegeBytes(g groups) *float64 {
	v := g.float(1)
	if v != nil && g[2] == "MB" {
		*v *= 1 << 20
	}
	return v
}

const siegeReply = `^(?:\[.*\] )?HTTP/\d(?:\.\d)? ([1-5])\d\d +[\d.]+ secs`

// list counts a line of siege's listing of replies (-v).
func (s *siege) list(text string) {
	if m := pattern(siegeReply).FindStringSubmatch(text); m != nil {
		s.listed[m[1]+"xx"]++
	}
}

func (s *siege) finish() {
	r := s.r
	r.Errors["failed"] = s.failed - r.Errors["fd-unavail"]
	if r.Errors["failed"] < 0 {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%d transactions failed, but %d met %q", s.failed, r.Errors["fd-unavail"], "Too many open files"))
		r.Errors["failed"], r.Errors["fd-unavail"] = s.failed, 0
	}
	var listed int64
	for _, n := range s.listed {
		listed += n
	}
	if listed > 0 && listed == r.Replies { // all of them, not the end of a list
		r.Statuses = s.listed
	}
	if s.bytes != nil {
		kb := *s.bytes / 1024
		r.ThroughputKBs = &kb
	}
	if r.Replies == 0 {
		r.ResponseMS = nil
	}
	if r.Seconds == 0 { // printed as 0.00
		r.RequestRate, r.ThroughputKBs = nil, nil
	}
	r.checkRate("transactions", r.Replies, r.RequestRate, 0.01, 0.01)
}
