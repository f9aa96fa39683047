// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/study"
)

// cellKey is what a run measured, when its file is named for it.
type cellKey struct {
	scheduler string
	rate      float64
}

const cellName = `^([a-z]+)-(\d+(?:\.\d+)?)$`

// cellOf reads a file name such as rr-2000.txt. Only httperf is asked for a
// rate of connections.
func cellOf(r *Result) (cellKey, bool) {
	if r.Tool != Httperf {
		return cellKey{}, false
	}
	base := filepath.Base(r.File)
	m := pattern(cellName).FindStringSubmatch(strings.TrimSuffix(base, filepath.Ext(base)))
	if m == nil {
		return cellKey{}, false
	}
	rate, err := strconv.ParseFloat(m[2], 64)
	return cellKey{m[1], rate}, err == nil
}

// cellsOf sorts runs into cells. A run whose name and command line give
// different rates is in none.
func cellsOf(runs []Result) map[cellKey][]*Result {
	cells := map[cellKey][]*Result{}
	for i := range runs {
		if key, ok := cellOf(&runs[i]); ok && !misnamed(&runs[i], key) {
			cells[key] = append(cells[key], &runs[i])
		}
	}
	return cells
}

func misnamed(r *Result, key cellKey) bool {
	return r.Asked.Rate != nil && *r.Asked.Rate != key.rate
}

// Published reports whether the runs look like those that a study published:
// their files are named for its cells, and those that tell what they asked,
// one at least, asked its virtual address.
func Published(runs []Result, s *study.Study) bool {
	if s.Published == nil || len(s.Published.Tables) == 0 || s.Published.VirtualAddress == "" {
		return false
	}
	told := false
	for key, rs := range cellsOf(runs) {
		for _, r := range rs {
			if !hasCell(s, key) || (r.Target != "" && host(r.Target) != s.Published.VirtualAddress) {
				return false
			}
			told = told || r.Target != ""
		}
	}
	return told
}

// hasCell reports whether a study publishes anything of a cell.
func hasCell(s *study.Study, key cellKey) bool {
	return slices.ContainsFunc(s.Published.Tables, func(t study.Table) bool {
		_, ok := t.Values[key.rate][key.scheduler]
		return ok
	})
}

// host is a target's address, without port and path.
func host(target string) string {
	target, _, _ = strings.Cut(target, "/")
	if i := strings.LastIndexByte(target, ':'); i >= 0 {
		target = target[:i]
	}
	return target
}
