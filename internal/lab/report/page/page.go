// SPDX-License-Identifier: Apache-2.0

// Package page makes a report a page for the browser: one file that needs no
// network and no script to be read.
//
// It judges nothing. Everything on the page is a figure of package report or
// of the stored samples, and every mark of a plot carries its figure in
// data-value, by which a test compares the two.
package page

import (
	"bufio"
	"embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/study"
)

// File is the page, in the directory of the run.
const File = "report.html"

//go:embed page.html.tmpl style.css theme.js
var files embed.FS

// layout is read when it is first needed: every other verb of the program would
// wait for it.
var layout = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html.tmpl").Funcs(template.FuncMap{"tidy": tidy, "toolFigure": toolFigure}).ParseFS(files, "page.html.tmpl"))
})

// document is what the layout lays out.
type document struct {
	*report.Report
	Style  template.CSS
	Script template.JS
	Facts  []string
	// Matrices show the judged metrics of all conditions at one glance, Keys their
	// marks.
	Matrices []matrix
	Keys     []markMeaning
	Parts    []part
	Marks    []markMeaning
	Setting  setting
	Files    []file
}

// PublishedFigures reports whether any stands in the tables.
func (d *document) PublishedFigures() bool {
	return slices.ContainsFunc(d.Parts, func(p part) bool {
		return slices.ContainsFunc(p.Tables, func(t table) bool {
			return slices.ContainsFunc(t.Heads, func(h head) bool { return h.Published })
		})
	})
}

// Raw are the files that hold what was measured.
func (d *document) Raw() (list []file) {
	for _, f := range d.Files {
		if slices.Contains([]string{record.SamplesFile, record.ArchivedFile, record.EnvironmentFile}, f.Name) {
			list = append(list, f)
		}
	}
	return list
}

// part is one section of the report.
type part struct {
	ID       string
	Title    string
	Numbered bool // there are several
	Single   bool // has one level
	Verdicts []verdict
	Groups   []group
	Tables   []table
	Pairs    []pairTable
	Noise    []noiseLine
}

// group is figures under one heading.
type group struct {
	ID, Title, Say string
	Keys           []key
	Figures        []figureBox
	Plain          string // in place of figures
}

// Narrow reports whether the group takes a third of the page's width.
func (g group) Narrow() bool {
	return len(g.Figures) == 0 || len(g.Figures) == 1 && len(g.Figures[0].Panels) == 1 && !g.Figures[0].Panels[0].Small
}

// figureBox is panels side by side, one a level.
type figureBox struct {
	Title, Note string
	Class       string
	Panels      []panelBox
}

type panelBox struct {
	Title string
	Plots []template.HTML
	Small bool // many small plots
}

// key explains a colour or a shape.
type key struct{ Class, Text string }

// Write makes the page and stores it in the directory of the run. It returns
// the page's path.
func Write(dir string, rep *report.Report) (string, error) {
	path := filepath.Join(dir, File)
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	out := bufio.NewWriter(f)
	if err = render(out, rep, listFiles(dir)); err == nil {
		err = out.Flush()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", fmt.Errorf("report: %s: %w", path, err)
	}
	return path, nil
}

func render(w io.Writer, rep *report.Report, list []file) error {
	d, err := newDocument(rep)
	if err != nil {
		return err
	}
	d.Files = list
	return layout().Execute(w, d)
}

func newDocument(rep *report.Report) (*document, error) {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return nil, err
	}
	script, err := files.ReadFile("theme.js")
	if err != nil {
		return nil, err
	}
	stored := rep.Stored()
	s, err := study.Parse(stored.Environment.Study, []byte(stored.Environment.StudyText), nil)
	if err != nil {
		return nil, fmt.Errorf("the study stored with the run: %w", err)
	}
	d := &document{
		Report: rep, Style: template.CSS(style), Script: template.JS(script),
		Facts: facts(stored.Environment, rep), Setting: newSetting(stored.Environment, s), Marks: marksOf(rep),
		Matrices: matrices(rep), Keys: matrixKeys(),
	}
	m := &maker{rep: rep, study: s, samples: byCell(stored.Samples), servers: inOrder(rep.Servers())}
	for i, sec := range rep.Sections {
		p, err := m.part(i, sec)
		if err != nil {
			return nil, err
		}
		d.Parts = append(d.Parts, p)
	}
	return d, nil
}

// maker makes the parts.
type maker struct {
	rep     *report.Report
	study   *study.Study
	samples map[record.Cell][]record.Sample
	servers []string
}

func byCell(samples []record.Sample) map[record.Cell][]record.Sample {
	cells := map[record.Cell][]record.Sample{}
	for _, s := range samples {
		if s.Error == "" && s.Load != nil {
			cells[s.Cell] = append(cells[s.Cell], s)
		}
	}
	return cells
}

func (m *maker) part(i int, sec report.Section) (part, error) {
	p := part{ID: fmt.Sprintf("s%d", i+1), Title: sentenceCase(sec.Title), Numbered: len(m.rep.Sections) > 1, Single: len(sec.Rows) == 1}
	for _, row := range sec.Rows {
		p.Verdicts = append(p.Verdicts, newVerdict(sec, row))
		p.Tables = append(p.Tables, newTable(sec, row))
		p.Pairs = append(p.Pairs, pairTables(sec, row)...)
		p.Noise = append(p.Noise, noiseLines(sec, row)...)
	}
	latency, err := m.latency(i, sec)
	if err != nil {
		return p, err
	}
	for _, g := range []group{m.dots(i, sec), m.course(i, sec), m.forest(i, sec), latency, m.shares(sec), m.timeline(i, sec), m.loss(sec), m.cpu(i, sec)} {
		if len(g.Figures) > 0 || g.Plain != "" {
			g.ID = p.ID + "-" + g.ID
			p.Groups = append(p.Groups, g)
		}
	}
	return p, nil
}

// at names a level.
func at(sec report.Section, row report.Row) string {
	return grouped(row.Level(), decimalsOf(row.Level())) + "\u00a0" + sec.LevelUnit
}

// inOrder sorts names with numbers in them as people do.
func inOrder(names []string) []string {
	out := slices.Clone(names)
	sortBy(out, func(s string) float64 { return float64(len(s)) })
	return out
}
