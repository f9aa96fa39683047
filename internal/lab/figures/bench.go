// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/lab/bench/history"
)

// benchFigure is a figure of the run of a benchmark that the performance page
// shows.
func (s *Store) benchFigure(part string, q query) (float64, error) {
	text, err := s.latest(part)
	if err != nil {
		return 0, err
	}
	var result any
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, err
	}
	return find(result, q)
}

// latest is the result of the run of a benchmark that the performance page shows.
func (s *Store) latest(part string) (json.RawMessage, error) {
	if s.runs == nil {
		runs, err := history.Read(filepath.Join(s.root, HistoryFile))
		if err != nil {
			return nil, err
		}
		s.runs = runs
	}
	latest, ok := history.Latest(s.runs, part)
	if !ok {
		return nil, fmt.Errorf("%s has no run of %s", HistoryFile, part)
	}
	return latest.Result, nil
}

// fileFigure is a figure of a file with one JSON value.
func (s *Store) fileFigure(name string, q query) (float64, error) {
	result, ok := s.files[name]
	if !ok {
		text, err := os.ReadFile(filepath.Join(s.root, name))
		if err != nil {
			return 0, err
		}
		if err := json.Unmarshal(text, &result); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		s.files[name] = result
	}
	return find(result, q)
}

// find takes a figure out of a result. The key in names a list; the member
// figure of its rows is the figure, and all other keys select rows, by one
// value or several separated by |. Without in, figure is one of the result's
// own. Members of inner objects have names of several words, as the tables of
// the performance page. The key stat is what is taken: the median; min or max
// of its samples; or, of several rows, the least or the most of their medians.
func find(result any, q query) (float64, error) {
	list, name := q.take("in", ""), q.take("figure", "")
	stat, err := statistic(q)
	if err != nil {
		return 0, err
	}
	all, ok := result.(map[string]any)
	if !ok {
		return 0, errors.New("the result is no object")
	}
	rows := []any{result}
	if list != "" {
		if rows, ok = all[list].([]any); !ok {
			return 0, fmt.Errorf("the result has no list %q", list)
		}
	}
	var values []float64
	for _, row := range rows {
		members := map[string]any{}
		flatten(members, "", row)
		if !selected(members, q) {
			continue
		}
		v, ok := members[name]
		if !ok {
			return 0, fmt.Errorf("no figure %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(members)), ", "))
		}
		x, ok := stat.of(v)
		if !ok {
			return 0, fmt.Errorf("%q is no number", name)
		}
		values = append(values, x)
	}
	return stat.one(values)
}

func selected(members map[string]any, q query) bool {
	for key, want := range q {
		v, ok := members[strings.ReplaceAll(key, "_", " ")]
		if !ok || !slices.Contains(strings.Split(want, "|"), fmt.Sprint(v)) {
			return false
		}
	}
	return true
}

// flatten puts the members of an object and of objects in it into one. A
// summary stays one value.
func flatten(into map[string]any, name string, v any) {
	o, ok := v.(map[string]any)
	if _, isSummary := o["median"]; !ok || isSummary {
		into[name] = v
		return
	}
	for key, inner := range o {
		flatten(into, strings.TrimSpace(name+" "+strings.ReplaceAll(key, "_", " ")), inner)
	}
}
