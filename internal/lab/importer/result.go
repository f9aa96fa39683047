// SPDX-License-Identifier: Apache-2.0

// Package importer reads what other load tools printed: httperf, ab
// (ApacheBench), siege and wrk. It makes one common result of each run, tables
// of many, the published tables of a study beside them, and findings: what the
// runs show and what they cannot.
//
// It takes readers and returns values; it opens no file and prints nothing.
// What a tool does not say is absent, never 0. Figures are as the tool printed
// them, in these units: seconds for durations, milliseconds for times of
// replies, 1024 bytes for KB.
package importer

import "fmt"

// The tools whose output is read.
const (
	Httperf = "httperf"
	AB      = "ab"
	Siege   = "siege"
	Wrk     = "wrk"
)

// Result is one run of a tool.
type Result struct {
	Tool    string `json:"tool"`
	Version string `json:"version,omitempty"`
	File    string `json:"file"`
	Run     int    `json:"run"`  // from 1, within the file
	Runs    int    `json:"runs"` // in the file
	Line    int    `json:"line"` // where it begins
	// Target is the address, port and path that were asked, as far as told.
	Target string `json:"target,omitempty"`
	Asked  Asked  `json:"asked"`

	Seconds     float64 `json:"duration_s"`
	Connections *int64  `json:"connections,omitempty"` // begun; only httperf counts them
	Requests    *int64  `json:"requests,omitempty"`    // sent; only httperf counts them apart from replies
	Replies     int64   `json:"replies"`               // whole ones, of whatever status
	// ConnectionRate and RequestRate are what was achieved, per second of the
	// duration. httperf's goes on until the last reply or timeout.
	ConnectionRate *float64 `json:"connections_per_s,omitempty"`
	RequestRate    *float64 `json:"requests_per_s,omitempty"`
	// ThroughputKBs is in 1024 bytes per second, headers included. httperf
	// counts requests and replies, the others replies only.
	ThroughputKBs *float64 `json:"throughput_kb_per_s,omitempty"`
	// ResponseMS is the tool's mean response time; ResponseIs says from when to
	// when.
	ResponseMS *float64 `json:"response_ms,omitempty"`
	ResponseIs string   `json:"response_is,omitempty"`
	// TimesMS are the other times, by the names below.
	TimesMS     map[string]float64 `json:"times_ms,omitempty"`
	Percentiles []Percentile       `json:"percentiles,omitempty"`
	// Statuses counts replies by class, such as 3xx. Tools that only tell
	// non-2xx say so in the key.
	Statuses map[string]int64 `json:"statuses,omitempty"`
	// Errors counts failures by cause, zeros included where the tool prints
	// them.
	Errors map[string]int64 `json:"errors,omitempty"`
	// CPU is that of the client, in percent of one processor.
	CPU *CPU `json:"client_cpu,omitempty"`

	RateSamples *int64   `json:"rate_samples,omitempty"` // httperf's, one each 5 s
	Successes   *int64   `json:"successes,omitempty"`    // siege's
	KeptAlive   *int64   `json:"kept_alive,omitempty"`   // ab's requests on connections that were kept
	Received    *float64 `json:"received_bytes,omitempty"`
	// Contradictions are figures of the run that cannot all be true.
	Contradictions []string `json:"contradictions,omitempty"`

	shown string // the file's name without what all files share
}

// Asked is what the tool was told to do, as far as it repeats it.
type Asked struct {
	Rate        *float64 `json:"rate,omitempty"` // connections per second; sessions with Sessions
	Sessions    bool     `json:"sessions,omitempty"`
	Connections *int64   `json:"connections,omitempty"`
	Calls       *int64   `json:"calls,omitempty"` // requests on each connection
	TimeoutS    *float64 `json:"timeout_s,omitempty"`
	Concurrency *int64   `json:"concurrency,omitempty"` // clients that wait for their reply
	Client      string   `json:"client,omitempty"`      // httperf's I/N: number I of N clients
}

// CPU is the share of one processor that the client used.
type CPU struct {
	User   float64 `json:"user_percent"`
	System float64 `json:"system_percent"`
	Total  float64 `json:"total_percent"`
}

// Percentile is a time that this share of the replies did not exceed.
type Percentile struct {
	Percent float64 `json:"percent"`
	MS      float64 `json:"ms"`
}

// Keys of Result.TimesMS. Not every tool has each of them.
const (
	TimeTransfer    = "transfer"          // httperf: first to last byte of the reply
	TimeReply       = "response+transfer" // httperf: the whole reply
	TimeConnect     = "connect"           // to establish a connection
	TimeConnMean    = "connection mean"   // life of successful connections
	TimeConnMedian  = "connection median"
	TimeConnMin     = "connection min"
	TimeConnMax     = "connection max"
	TimeMin         = "min"
	TimeMedian      = "median"
	TimeMax         = "max"
	TimePerRequest  = "duration / requests" // ab's second "Time per request": no reply took it
	TimeProcessing  = "processing"
	TimeFirstAnswer = "waiting"
)

// Name is how the run is called in messages.
func (r *Result) Name() string {
	name := r.File
	if r.shown != "" {
		name = r.shown
	}
	if r.Runs > 1 {
		return fmt.Sprintf("%s run %d", name, r.Run)
	}
	return name
}

// lost is the sum of the failures.
func (r *Result) lost() (n int64) {
	for _, v := range r.Errors {
		n += v
	}
	return n
}
