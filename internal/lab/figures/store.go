// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"imbang/internal/lab/bench/history"
	"imbang/internal/lab/importer"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
)

// The places of stored results below the root of the tree.
const (
	HistoryFile = "docs/bench/history.jsonl"
	StudiesDir  = "docs/studies" // a directory for each archived run, named for its study
	logsDir     = "internal/lab/importer/testdata"
	// recordingsDir has the scenarios of Linux's IPVS, in a directory for each
	// kind.
	recordingsDir = "internal/lab/conform/testdata"
)

// Store is the stored results below a directory. They are read when a page
// asks for them.
type Store struct {
	root    string
	runs    []history.Run
	files   map[string]any
	studies map[string]*stored
	logs    map[string]*importer.Report
}

// stored is an archived run.
type stored struct {
	run    *record.Run
	report *report.Report
}

// Open is the store of the tree at root.
func Open(root string) *Store {
	return &Store{root: root, files: map[string]any{}, studies: map[string]*stored{}, logs: map[string]*importer.Report{}}
}

// errNoRun is for a study without an archived run.
var errNoRun = errors.New("no run is stored")

// study is the archived run of a study.
func (s *Store) study(name string) (*stored, error) {
	if one, ok := s.studies[name]; ok {
		return one, nil
	}
	dir := filepath.Join(s.root, StudiesDir, name)
	run, err := record.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("study %s: %w", name, errNoRun)
	}
	if err != nil {
		return nil, err
	}
	rep, err := report.New(run)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s.studies[name] = &stored{run, rep}
	return s.studies[name], nil
}

// figure is the value that a comment names.
func (s *Store) figure(text string) (float64, error) {
	q, err := parseQuery(text)
	if err != nil {
		return 0, err
	}
	for _, source := range []struct {
		key string
		of  func(name string, q query) (float64, error)
	}{
		{"bench", s.benchFigure}, {"file", s.fileFigure}, {"study", s.studyFigure}, {"published", s.publishedFigure}, {"logs", s.logsFigure},
		{"recordings", s.recordingsFigure},
	} {
		if name := q.take(source.key, ""); name != "" {
			v, err := source.of(name, q)
			if err != nil {
				err = fmt.Errorf("%w (%s)", err, text)
			}
			return v, err
		}
	}
	return 0, fmt.Errorf("%q names no source: want bench, file, study, published, logs or recordings", text)
}
