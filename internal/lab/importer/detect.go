// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// format is one tool's output. A run begins with its head, which may be cut
// off, or with its body, the first line of its results.
type format struct {
	tool  string
	head  func(string) bool
	body  func(string) bool
	parse func(b *block, r *Result) error
}

const httperfHead = `^\S*httperf .*--client=\d+/\d+ `

// formats are recognized by lines that no other tool prints.
var formats = []format{
	{Httperf, matching(httperfHead), prefixed("Total: connections "), parseHttperf},
	{AB, prefixed("This is ApacheBench, "), prefixed("Server Software:"), parseAB},
	{Siege, func(s string) bool { return prefixed("** siege ")(strings.ToLower(s)) }, siegeBody, parseSiege},
	{Wrk, matching(wrkHead), prefixed("Thread Stats"), parseWrk},
}

func prefixed(p string) func(string) bool {
	return func(s string) bool { return strings.HasPrefix(s, p) }
}

// block is the lines of one run.
type block struct {
	format *format
	lines  []line
	whole  bool // the body has begun
}

// foreign are outputs that are near those that are read, and what to do.
var foreign = []struct{ mark, remedy string }{
	{"<th colspan=2", "ab's HTML tables (-w): run ab without -w and give what it prints"},
	{"Thread calibration:", "wrk2's output, whose load is another than wrk's: only httperf, ab, siege and wrk are read"},
	{"HdrHistogram", "wrk2's output, whose load is another than wrk's: only httperf, ab, siege and wrk are read"},
}

// onlyComplaints begin all that a tool prints if it cannot start.
var onlyComplaints = []struct{ tool, mark string }{{Wrk, "unable to connect to "}, {Siege, siegeError}}

// Parse reads the output of one or more runs. The name is used in messages and
// results. Runs before one that cannot be read are returned with the error,
// which is one line and names the file.
func Parse(r io.Reader, name string) ([]Result, error) {
	lines, err := readLines(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	blocks, err := split(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var results []Result
	var bad []error
	for i, b := range blocks {
		res := Result{Tool: b.format.tool, File: name, Run: i + 1, Runs: len(blocks), Line: b.lines[0].number}
		if err := b.parse(&res); err != nil {
			bad = append(bad, fmt.Errorf("%s:%w", name, err))
			continue
		}
		results = append(results, res)
	}
	return results, errors.Join(bad...)
}

// split finds the runs in a text.
func split(lines []line) ([]*block, error) {
	var blocks []*block
	var now *block
	var errorsOfSiege []line // since the last run: siege prints them before its results
	for _, l := range lines {
		text := strings.TrimLeft(l.text, " \t")
		if (now == nil || now.whole) && strings.HasPrefix(text, siegeError) {
			errorsOfSiege = append(errorsOfSiege, line{l.number, text})
			continue
		}
		for i := range formats {
			f := &formats[i]
			switch {
			case f.head(text):
				now = &block{format: f}
				blocks = append(blocks, now)
			case f.body(text) && now != nil && now.format == f && !now.whole:
				now.whole = true
			case f.body(text):
				now = &block{format: f, whole: true}
				if f.tool == Siege {
					now.lines, errorsOfSiege = errorsOfSiege, nil
				}
				blocks = append(blocks, now)
			}
		}
		for _, f := range foreign {
			if strings.Contains(text, f.mark) {
				return nil, errors.New(f.remedy)
			}
		}
		if now != nil {
			now.lines = append(now.lines, line{l.number, text})
		}
	}
	if len(blocks) == 0 {
		for _, l := range slices.Backward(lines) {
			for _, of := range onlyComplaints {
				if strings.HasPrefix(l.text, of.mark) {
					return nil, withoutResults(of.tool, l.text)
				}
			}
		}
		return nil, errors.New("no output of httperf, ab, siege or wrk: give what the tool printed, standard error included")
	}
	return blocks, nil
}

// parse reads a run, or says where and why not.
func (b *block) parse(r *Result) error {
	if b.whole {
		return b.format.parse(b, r)
	}
	first := b.lines[0].number
	if why := complaint(b.lines[1:]); why != "" {
		return fmt.Errorf("%d: %w", first, withoutResults(b.format.tool, why))
	}
	return fmt.Errorf("%d: %s's results are missing: the run was stopped or the file is cut; run it again", first, b.format.tool)
}

// exhausted are the kernel's words for what a client can run out of.
var exhausted = []struct{ text, what, remedy string }{
	{"Too many open files in system", "the system's file table", "raise fs.file-max"},
	{"Too many open files", "file descriptors", "raise ulimit -n above the number of clients, or ask for fewer clients"},
	{"Cannot assign requested address", "port numbers", "widen net.ipv4.ip_local_port_range, or use several client addresses"},
	{"Cannot allocate memory", "memory", "ask for fewer clients"},
}

// withoutResults says why a tool gave up, and what to do.
func withoutResults(tool, why string) error {
	for _, e := range exhausted {
		if strings.Contains(why, e.text) {
			return fmt.Errorf("%s ended without results (%q): the client ran out of %s, so nothing was measured: %s", tool, shorten(why), e.what, e.remedy)
		}
	}
	return fmt.Errorf("%s ended without results (%q): repair that and run it again", tool, shorten(why))
}

// failures are words of a tool that gives up, the kernel's among them.
var failures = []string{
	"refused", "error", "timeout", "timed out", "failed", "unable", "cannot", "No route", "unreachable", "reset by peer", "Broken pipe",
}

// complaint is the last thing that a tool said before it gave up: a resource that ran out,
// or else another failure.
func complaint(lines []line) (why string) {
	for _, l := range slices.Backward(lines) {
		contains := func(s string) bool { return strings.Contains(l.text, s) }
		if slices.ContainsFunc(exhausted, func(e struct{ text, what, remedy string }) bool { return contains(e.text) }) {
			return l.text
		}
		if why == "" && slices.ContainsFunc(failures, contains) {
			why = l.text
		}
	}
	return why
}

// shorten keeps a quoted line within a message.
func shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
