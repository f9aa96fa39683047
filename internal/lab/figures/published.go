// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"imbang/internal/lab/importer"
	"imbang/internal/lab/study"
)

// publishedFigure is a figure that a built-in study records of its publication:
// that of a competitor at a level, or, with over, by how many percent it exceeds
// another one's. Without level it is of all levels; with where it is what that
// part of the publication says besides its tables.
func (s *Store) publishedFigure(name string, q query) (float64, error) {
	st, err := study.Find(name, nil)
	if err != nil {
		return 0, err
	}
	if request := q.take("replies", ""); request != "" {
		return repliesFigure(st.Published, request, q)
	}
	metric, of, over, level := q.take("metric", ""), q.take("of", ""), q.take("over", ""), q.take("level", "")
	family, where := q.take("family", st.Families[0]), q.take("where", "")
	take, err := statistic(q)
	if err == nil {
		err = q.done()
	}
	if err != nil {
		return 0, err
	}
	t, ok := st.Published.TableOf(study.Metric(metric), family)
	if !ok {
		return 0, fmt.Errorf("%s publishes no table of %q", name, metric)
	}
	var values []float64
	if where != "" {
		for _, x := range st.Published.Statements {
			if x.Where == where && string(x.Metric) == metric && x.Of == of && x.Over == over {
				values = append(values, x.Value+x.Percent) // one of them is 0
			}
		}
		return take.one(values)
	}
	for at, row := range t.Values {
		if level != "" && level != strconv.FormatFloat(at, 'g', -1, 64) {
			continue
		}
		v, ok := row[of]
		if !ok {
			continue
		}
		if over != "" {
			v = 100 * (v/row[over] - 1)
		}
		values = append(values, v)
	}
	return take.one(values)
}

// repliesFigure is what a publication shows of the replies to a request.
func repliesFigure(p *study.Published, request string, q query) (float64, error) {
	figure := q.take("figure", "")
	if err := q.done(); err != nil {
		return 0, err
	}
	for _, r := range p.Replies {
		if r.Of != request {
			continue
		}
		switch figure {
		case "count":
			return float64(r.Count), nil
		case "not_2xx":
			return float64(r.Not2xx), nil
		case "failed":
			return float64(r.Failed), nil
		}
		return 0, fmt.Errorf("no figure %q: there are count, not_2xx, failed", figure)
	}
	return 0, fmt.Errorf("nothing is recorded of replies to %q", request)
}

// logsFigure counts what imports of a publication's own logs came to.
func (s *Store) logsFigure(name string, q query) (float64, error) {
	rep, err := s.imported(name)
	if err != nil {
		return 0, err
	}
	figure := q.take("figure", "")
	if err := q.done(); err != nil {
		return 0, err
	}
	switch figure {
	case "runs":
		return float64(len(rep.Runs)), nil
	case "compared":
		return float64(rep.Comparison.Compared), nil
	case "disagreeing":
		return float64(len(rep.Comparison.Disagreements)), nil
	}
	return 0, fmt.Errorf("no figure %q: there are runs, compared, disagreeing", figure)
}

// imported reads the logs of a publication that are in the tree.
func (s *Store) imported(name string) (*importer.Report, error) {
	if rep, ok := s.logs[name]; ok {
		return rep, nil
	}
	st, err := study.Find(name, nil)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(s.root, logsDir, name, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no logs of %s in %s", name, logsDir)
	}
	var runs []importer.Result
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		rs, err := importer.Parse(f, file)
		f.Close()
		if err != nil {
			return nil, err
		}
		runs = append(runs, rs...)
	}
	s.logs[name] = importer.New(runs, st)
	if s.logs[name].Comparison == nil {
		return nil, fmt.Errorf("%s publishes no tables", name)
	}
	return s.logs[name], nil
}
