// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/lab/bench"
)

// costBlocks are the blocks that can be made of what packets cost: of a file
// with the result of one benchmark (file=), or of its latest run (bench=).
var costBlocks = map[string]func([]byte, query) (string, error){"ratios": ratios, "stages": stages}

// costBlock makes one.
func (s *Store) costBlock(show string, q query) (string, error) {
	text, err := s.result(q.take("file", ""), q.take("bench", ""))
	if err != nil {
		return "", err
	}
	out, err := costBlocks[show](text, q)
	if err == nil {
		err = q.done()
	}
	return out, err
}

// result is that of a file, or of the latest run of a part.
func (s *Store) result(file, part string) ([]byte, error) {
	if part == "" {
		return os.ReadFile(filepath.Join(s.root, file))
	}
	return s.latest(part)
}

// traffics are the kinds of packets, as columns.
var traffics = []struct{ name, title string }{{"one", "one flow"}, {"many", "many flows"}, {"new", "new connections"}}

// costHead begins a table with a column for each of them.
func costHead(label string) string {
	head := "| " + label + " |"
	for _, t := range traffics {
		head += " " + t.title + " |"
	}
	return head + "\n|" + strings.Repeat(" --- |", len(traffics)+1) + "\n"
}

// ratios sets forwarders beside those that they are compared with: the cost of a
// packet over theirs, median and range of the rounds, the cheapest of these first.
// The keys of, scheduler and servers select.
func ratios(text []byte, q query) (string, error) {
	var r bench.FloodResult
	if err := json.Unmarshal(text, &r); err != nil {
		return "", err
	}
	of, scheduler, servers := split(q.take("of", ""), ","), q.take("scheduler", "rr"), q.take("servers", "3")
	costs := map[string]map[string]bench.FloodCost{} // by traffic and competitor
	for _, c := range r.Costs {
		if c.Scheduler == scheduler && fmt.Sprint(c.Servers) == servers {
			if costs[c.Traffic] == nil {
				costs[c.Traffic] = map[string]bench.FloodCost{}
			}
			costs[c.Traffic][c.Competitor] = c
		}
	}
	var others []string
	for other := range costs["one"][of[0]].Over {
		others = append(others, other)
	}
	if len(others) == 0 {
		return "", fmt.Errorf("%s is compared with none", of[0])
	}
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Compare(costs["one"][a].Own.Median, costs["one"][b].Own.Median)
	})
	var b strings.Builder
	b.WriteString(costHead("cost of a packet"))
	for _, name := range of {
		for _, other := range others {
			fmt.Fprintf(&b, "| `%s` to `%s` |", name, other)
			for _, t := range traffics {
				over, ok := costs[t.name][name].Over[other]
				if !ok {
					return "", fmt.Errorf("%s is not compared with %s", name, other)
				}
				fmt.Fprintf(&b, " %.2f (%.2f to %.2f) |", over.Median, over.Min, over.Max)
			}
			b.WriteString("\n")
		}
	}
	return b.String(), nil
}

// stages are the costs of the stages of a packet's path, with the calls of maps in
// brackets: look-ups, and with + the elements inserted or deleted.
func stages(text []byte, q query) (string, error) {
	var r bench.StagesResult
	if err := json.Unmarshal(text, &r); err != nil {
		return "", err
	}
	path := q.take("path", "tc")
	var names []string
	cells := map[string]map[string]bench.StageCost{}
	for _, c := range r.Costs {
		if c.Path != path {
			continue
		}
		if cells[c.Stage] == nil {
			cells[c.Stage] = map[string]bench.StageCost{}
			names = append(names, c.Stage)
		}
		cells[c.Stage][c.Traffic] = c
	}
	if len(names) == 0 {
		return "", errors.New("no such path")
	}
	var b strings.Builder
	b.WriteString(costHead("stage"))
	for _, name := range names {
		fmt.Fprintf(&b, "| %s |", name)
		for _, t := range traffics {
			c, ok := cells[name][t.name]
			switch {
			case !ok || c.NS.N == 0:
				return "", fmt.Errorf("stage %s was not measured with %s", name, t.title)
			case c.NS.Median < 0.5 && c.Lookups+c.Changes == 0:
				b.WriteString(" |") // not on the path of such packets
				continue
			}
			fmt.Fprintf(&b, " %.0f (%s) |", c.NS.Median, calls(c))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// calls are the look-ups and changes of map elements for a packet.
func calls(c bench.StageCost) string {
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", c.Lookups), ".0")
	if c.Changes > 0 {
		text += " + " + strings.TrimSuffix(fmt.Sprintf("%.1f", c.Changes), ".0")
	}
	return text
}
