// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// RampsFile has what a returning server got under each scheduler, and RampsImage is drawn
// from it.
const (
	RampsFile  = "docs/bench/slow-start.json"
	RampsImage = "docs/images/slow-start.svg"
)

// ramps is the content of RampsFile.
type ramps struct {
	Each int    `json:"connections_each_tenth"`
	Runs []ramp `json:"runs"`
}

type ramp struct {
	Scheduler string  `json:"scheduler"`
	Seconds   float64 `json:"slow_start_seconds"`
	Share     float64 `json:"fair_share"` // of the service's connections
	Taken     []int   `json:"taken"`      // in each tenth
}

// Sizes of a panel and of what is around it [px].
const (
	panelWidth, panelHeight = 150, 90
	panelLeft, panelTop     = 34, 26
	panelAcross             = 4
	panelStepX              = panelLeft + panelWidth + 16
	panelStepY              = panelTop + panelHeight + 30
)

// Ramps draws RampsImage: a panel for each scheduler, with the returning server's part of
// the new connections in each tenth of the slow start.
func Ramps(text []byte) (string, error) {
	var all ramps
	if err := json.Unmarshal(text, &all); err != nil {
		return "", err
	}
	by := map[string][]ramp{}
	for _, r := range all.Runs {
		if len(r.Taken) == 0 || all.Each == 0 {
			return "", fmt.Errorf("%s: no connections", r.Scheduler)
		}
		by[r.Scheduler] = append(by[r.Scheduler], r)
	}
	var names []string
	for name, runs := range by {
		if len(runs) != 2 {
			return "", fmt.Errorf("%s: %d runs, want one with and one without a slow start", name, len(runs))
		}
		slices.SortFunc(runs, func(a, b ramp) int { return cmp.Compare(a.Seconds, b.Seconds) })
		names = append(names, name)
	}
	slices.Sort(names)
	rows := (len(names) + panelAcross - 1) / panelAcross
	var b strings.Builder
	fmt.Fprintf(&b, rampsHead, panelAcross*panelStepX, rows*panelStepY+28)
	for i, name := range names {
		without, with := by[name][0], by[name][1]
		fmt.Fprintf(&b, "  <g transform=\"translate(%d %d)\">\n", panelLeft+i%panelAcross*panelStepX, 28+panelTop+i/panelAcross*panelStepY)
		panel(&b, name, without, with, float64(all.Each))
		b.WriteString("  </g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}

const rampsHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="11">
  <title id="t">A returning server's part of the new connections, under each scheduler</title>
  <desc id="d">A panel for each scheduler. With a slow start the part rises along the straight line to the fair share; without one, lc, wlc, sed, nq, lblc, lblcr and twos begin above it.</desc>
  <style>
    text { fill: #1f2328 }
    .small { fill: #57606a; font-size: 10px }
    .axis { stroke: #57606a; fill: none }
    .bound { stroke: #8c959f; stroke-dasharray: 4 3; fill: none }
    .with { stroke: #0969da; stroke-width: 2; fill: none }
    .without { stroke: #bc4c00; stroke-width: 1.5; fill: none }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .axis { stroke: #9198a1 }
      .bound { stroke: #6e7681 }
      .with { stroke: #58a6ff }
      .without { stroke: #f0883e }
    }
  </style>
  <g transform="translate(34 16)">
    <path class="with" d="M0 -4h24"/><text x="30">with a slow start T</text>
    <path class="without" d="M150 -4h24"/><text x="180">without</text>
    <path class="bound" d="M250 -4h24"/><text x="280">t/T of the fair share</text>
    <text class="small" x="430">vertical: part of the new connections; horizontal: 0 to T</text>
  </g>
`

// panel draws one scheduler. The line without a slow start may leave the panel at its top.
func panel(b *strings.Builder, name string, without, with ramp, each float64) {
	most := min(1, with.Share*1.2)
	for _, r := range []ramp{without, with} {
		for _, n := range r.Taken {
			most = max(most, float64(n)/each)
		}
	}
	line := func(r ramp) string {
		var points []string
		for i, n := range r.Taken {
			x := (float64(i) + 0.5) / float64(len(r.Taken)) * panelWidth
			points = append(points, fmt.Sprintf("%.1f %.1f", x, panelHeight*(1-float64(n)/each/most)))
		}
		return "M" + strings.Join(points, "L")
	}
	fmt.Fprintf(b, "    <text x=\"0\" y=\"-8\" font-weight=\"600\">%s</text>\n", name)
	fmt.Fprintf(b, "    <text class=\"small\" x=\"-4\" y=\"8\" text-anchor=\"end\">%.0f%%</text><text class=\"small\" x=\"-4\" y=\"%d\" text-anchor=\"end\">0</text>\n", most*100, panelHeight)
	fmt.Fprintf(b, "    <text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">T</text>\n", panelWidth, panelHeight+13)
	fmt.Fprintf(b, "    <path class=\"axis\" d=\"M0 0V%dH%d\"/>\n", panelHeight, panelWidth)
	fmt.Fprintf(b, "    <path class=\"bound\" d=\"M0 %dL%d %.1f\"/>\n", panelHeight, panelWidth, panelHeight*(1-with.Share/most))
	fmt.Fprintf(b, "    <path class=\"without\" d=\"%s\"/>\n", line(without))
	fmt.Fprintf(b, "    <path class=\"with\" d=\"%s\"/>\n", line(with))
}
