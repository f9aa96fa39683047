// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/record"
)

// TablesFile is the report for people, in the directory of the run.
const TablesFile = "tables.txt"

// Write reports on the run stored in a directory: it makes the report, stores
// tables.txt and one CSV file a metric beside the samples, and returns it.
func Write(dir string) (*Report, error) {
	stored, err := record.Read(dir)
	if err != nil {
		return nil, err
	}
	rep, err := New(stored)
	if err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, TablesFile), rep.Text); err != nil {
		return nil, err
	}
	for _, m := range metrics {
		if err := writeFile(filepath.Join(dir, m.Key+".csv"), func(w io.Writer) error { return rep.metricCSV(w, m) }); err != nil {
			return nil, err
		}
	}
	if err := writeFile(filepath.Join(dir, "spread.csv"), rep.spreadCSV); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, "comparisons.csv"), rep.comparisonsCSV); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, "loss_causes.csv"), rep.causesCSV); err != nil {
		return nil, err
	}
	if len(rep.Configurations) == 0 {
		return rep, nil
	}
	return rep, writeFile(filepath.Join(dir, ConfigurationsFile), rep.configurations)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("report: %s: %w", path, err)
	}
	return f.Close()
}

// JSON writes the report for programs.
func (rep *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}

// eachCell calls f with every cell and the columns that identify it.
func (rep *Report) eachCell(f func(id []string, c Cell)) {
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, c := range row.Cells {
				f(append([]string{c.Name, c.Engine, c.Scheduler, c.Weights, strconv.Itoa(c.Servers)}, ids(row.Condition)...), c)
			}
		}
	}
}

// ids are the columns that identify a condition.
func ids(c record.Condition) []string {
	return []string{c.Family, c.Call, c.Tool, c.Arrivals, number(c.Rate), strconv.Itoa(c.Users), strconv.Itoa(c.Requests)}
}

var conditionColumns = []string{"family", "call", "tool", "arrivals", "rate", "users", "requests"}

var idColumns = append([]string{"competitor", "engine", "scheduler", "weights", "servers"}, conditionColumns...)

// table writes one CSV file: a head, then the rows that rowsOf gives for each
// cell.
func (rep *Report) table(w io.Writer, columns []string, rowsOf func(Cell) [][]string) error {
	out := csv.NewWriter(w)
	_ = out.Write(append(append([]string(nil), idColumns...), columns...)) // Error tells
	rep.eachCell(func(id []string, c Cell) {
		for _, row := range rowsOf(c) {
			_ = out.Write(append(append([]string(nil), id...), row...))
		}
	})
	out.Flush()
	return out.Error()
}

// metricCSV has one row a cell.
func (rep *Report) metricCSV(w io.Writer, m Metric) error {
	unit := "[" + m.Unit + "]"
	columns := []string{"published " + unit, "median " + unit, "min " + unit, "max " + unit,
		"interval low " + unit, "interval high " + unit, "interval level", "runs", "ranked", "marks", "late runs"}
	for _, key := range m.Beside {
		columns = append(columns, strings.ToLower(metric(key).Title)+" "+unit)
	}
	return rep.table(w, columns, func(c Cell) [][]string {
		v := c.Values[m.Key]
		row := []string{"", "", "", "", "", "", ""}
		if v.Published != nil {
			row[0] = number(*v.Published)
		}
		if v.N > 0 {
			row[1], row[2], row[3] = number(v.Median), number(v.Min), number(v.Max)
		}
		if v.Interval != nil {
			row[4], row[5], row[6] = number(v.Interval.Low), number(v.Interval.High), number(v.Interval.Level)
		}
		row = append(row, strconv.Itoa(v.N), strconv.FormatBool(c.RankedBy(m.Key)), c.Marks.String(), strconv.Itoa(len(c.Late)))
		for _, key := range m.Beside {
			delay := ""
			if v := c.Values[key]; v.N > 0 {
				delay = number(v.Median)
			}
			row = append(row, delay)
		}
		return [][]string{row}
	})
}

// spreadCSV has one row a cell and server.
func (rep *Report) spreadCSV(w io.Writer) error {
	servers := rep.servers()
	return rep.table(w, []string{"server", "share"}, func(c Cell) (rows [][]string) {
		for _, s := range servers {
			share := "" // the tool does not tell
			if len(c.Spread) > 0 {
				share = number(c.Spread[s])
			}
			rows = append(rows, []string{s, share})
		}
		return rows
	})
}

// causesCSV has one row a cell and cause, zeros included.
func (rep *Report) causesCSV(w io.Writer) error {
	return rep.table(w, []string{"cause", "requests"}, func(c Cell) (rows [][]string) {
		for _, cause := range causeNames {
			rows = append(rows, []string{cause, strconv.Itoa(c.Loss[cause])})
		}
		return rows
	})
}

// comparisonsCSV has one row a pair of competitors and metric.
func (rep *Report) comparisonsCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write(append(slices.Clone(conditionColumns), "metric", "a", "b", "blocks", "finding", "b to a",
		"joint low", "joint high", "joint level", "own low", "own high", "own level", "p")) // Error tells
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, m := range metrics {
				for _, p := range row.Comparisons[m.Key].Pairs {
					cells := append(ids(row.Condition), m.Key, p.A, p.B, strconv.Itoa(p.Blocks), string(p.Finding))
					for _, v := range []float64{p.Difference, p.Joint.Low, p.Joint.High, p.Joint.Level, p.Own.Low, p.Own.High, p.Own.Level, p.P} {
						cells = append(cells, strconv.FormatFloat(v, 'g', 6, 64))
					}
					_ = out.Write(cells)
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
