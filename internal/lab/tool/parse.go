// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"io"

	"imbang/internal/lab/importer"
)

// Read is the Parse of every tool: what the importer of their outputs reads.
func Read(output io.Reader, name string) (*Output, error) {
	results, err := importer.Parse(output, name)
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("%s: the outputs of %d runs, want one", name, len(results))
	}
	return outputOf(&results[0]), nil
}

func outputOf(r *importer.Result) *Output {
	o := &Output{
		Seconds: r.Seconds, Connections: r.Connections, Replies: r.Replies, Status: r.Statuses, Errors: r.Errors,
		ResponseMS: r.ResponseMS, ResponseIs: r.ResponseIs, KBs: r.ThroughputKBs,
		ConnectMS: timeOf(r, importer.TimeConnect), MaxMS: timeOf(r, importer.TimeMax), Percentiles: map[float64]float64{},
	}
	for _, p := range r.Percentiles {
		o.Percentiles[p.Percent] = p.MS
	}
	switch r.Tool {
	case importer.Httperf: // its response ends with the first byte
		o.FirstByteMS, o.ResponseMS = r.ResponseMS, timeOf(r, importer.TimeReply)
		o.LongestMS = timeOf(r, importer.TimeConnMax)
		o.ResponseIs, o.Both = "from the first byte of the request to the last of the reply", true
	case importer.AB: // what failed is complete too
		for _, n := range r.Errors {
			o.Replies -= n
		}
		o.FirstByteMS = timeOf(r, importer.TimeFirstAnswer)
	}
	return o
}

func timeOf(r *importer.Result, key string) *float64 {
	if ms, ok := r.TimesMS[key]; ok {
		return &ms
	}
	return nil
}
