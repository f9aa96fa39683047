// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"path/filepath"
	"strings"

	"imbang/internal/lab/study"
)

// Report is everything that is said about imported runs, ready for print or
// JSON.
type Report struct {
	// Directory is what all files share; findings name runs without it.
	Directory  string      `json:"directory,omitempty"`
	Runs       []Result    `json:"runs"`
	Tables     []Table     `json:"tables,omitempty"`
	Comparison *Comparison `json:"comparison,omitempty"`
	Findings   []Finding   `json:"findings"`
	// Refused says of each file that could not be read why not.
	Refused []string `json:"refused,omitempty"`
}

// New makes the report of runs, beside the figures that a study published; the
// study may be nil. Without runs it is about those figures alone.
func New(runs []Result, s *study.Study) *Report {
	rep := &Report{Runs: runs, Directory: shareDirectory(runs)}
	if runs == nil {
		rep.Runs = []Result{}
	}
	cells := cellsOf(runs)
	if s != nil && s.Published != nil {
		rep.Comparison = compare(s, cells)
	}
	rep.Tables = tables(s, cells, rep.Comparison)
	rep.Findings = findings(runs)
	if rep.Comparison != nil {
		if len(runs) > 0 {
			rep.Findings = append(rep.Findings, studyFindings(s, rep, cells)...)
		}
		rep.Findings = append(rep.Findings, publishedFindings(s)...)
	}
	return rep
}

// shareDirectory takes the directory that all files are in out of the names
// that are shown.
func shareDirectory(runs []Result) string {
	if len(runs) == 0 {
		return ""
	}
	dir := filepath.Dir(runs[0].File)
	for _, r := range runs {
		for !strings.HasPrefix(r.File, dir+string(filepath.Separator)) {
			if dir == "." || dir == string(filepath.Separator) {
				return ""
			}
			dir = filepath.Dir(dir)
		}
	}
	for i := range runs {
		runs[i].shown = strings.TrimPrefix(runs[i].File, dir+string(filepath.Separator))
	}
	return dir
}
