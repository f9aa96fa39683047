// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"path/filepath"

	"imbang/internal/lab/conform"
)

// recordingsFigure counts the recorded scenarios of one kind or of all: those
// that are played, and those that come out as in Linux. TestRecordings of
// package conform plays them and holds the list of the others to it.
func (s *Store) recordingsFigure(kind string, q query) (float64, error) {
	figure := q.take("figure", "")
	if err := q.done(); err != nil {
		return 0, err
	}
	if kind == "all" {
		kind = "*"
	}
	files, err := filepath.Glob(filepath.Join(s.root, recordingsDir, kind, "*.json"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no recordings of %q in %s", kind, recordingsDir)
	}
	played, identical := 0., 0.
	for _, file := range files {
		recordings, err := conform.Read(file)
		if err != nil {
			return 0, err
		}
		for _, r := range recordings {
			played++
			if _, differs := conform.NotYet[r.Scenario.Name]; !differs {
				identical++
			}
		}
	}
	switch figure {
	case "played":
		return played, nil
	case "identical":
		return identical, nil
	}
	return 0, fmt.Errorf("no figure %q: there are played, identical", figure)
}
