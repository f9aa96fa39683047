// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

// Table is what became of a table.
type Table struct {
	Services Edits     `json:"services"`
	Servers  Edits     `json:"servers"`
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals,omitempty"` // the first ones
}

// tableLines is how many lines one batch has: the table's lock is held meanwhile.
const tableLines = 2000

// errLine is why a line of another command is refused.
const errLine = "want what ipvsadm -Sn prints: lines of -A and -a"

// ErrEmptyTable is the error of a text without a command, such as that of an ssh that failed.
var ErrEmptyTable = errors.New("no line of -A or -a, as ipvsadm -Sn prints them for a table that is not empty")

// EnterTable adds the services and servers that the output of ipvsadm -Sn has and a table
// has not. Those that it has stay as they are, also if they differ. An error is one of the
// table, or of the context: what was added until then is counted.
func EnterTable(ctx context.Context, to ipvsadm.Table, text []byte) (t Table, err error) {
	lines := strings.Split(string(text), "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return len(command(l)) > 0 }) {
		return t, ErrEmptyTable
	}
	for first := 0; first < len(lines); first += tableLines {
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		err := to.Batch(func(batch ipvsadm.Table) error {
			a := adder{Table: batch, report: &t}
			for i := first; i < min(first+tableLines, len(lines)); i++ {
				a.line(i+1, lines[i])
			}
			return nil
		})
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// adder is a table to which commands of ipvsadm add what is missing.
type adder struct {
	ipvsadm.Table
	report *Table
}

func (a adder) line(number int, line string) {
	words := command(line)
	if len(words) == 0 {
		return
	}
	var said bytes.Buffer
	switch words[0] {
	case "-A", "-a", "--add-service", "--add-server":
		if ipvsadm.Run(words, strings.NewReader(""), io.Discard, &said, func() (ipvsadm.Table, error) { return a, nil }, nil) == 0 {
			return
		}
	default:
		said.WriteString(errLine)
	}
	why, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
	a.report.Refused++
	if len(a.report.Refusals) < mostRefusals {
		a.report.Refusals = append(a.report.Refusals, Refusal{number, line, strings.TrimPrefix(why, "ipvsadm: ")})
	}
}

// command are the words of a line without the program's name; none: it is empty or a comment.
func command(line string) []string {
	words := strings.Fields(line)
	if len(words) > 0 && words[0] == "ipvsadm" {
		words = words[1:]
	}
	if len(words) > 0 && strings.HasPrefix(words[0], "#") {
		return nil
	}
	return words
}

// Batch implements ipvsadm.Table: the batch is open.
func (a adder) Batch(edit func(ipvsadm.Table) error) error { return edit(a) }

func (a adder) AddService(s model.Service) error {
	return a.report.Services.count(a.Table.AddService(s), model.ErrServiceExists)
}

func (a adder) AddServer(k model.ServiceKey, s model.Server) error {
	return a.report.Servers.count(a.Table.AddServer(k, s), model.ErrServerExists)
}

// count counts an edit; one whose object exists is no error.
func (e *Edits) count(err, exists error) error {
	switch {
	case err == nil:
		e.Added++
	case errors.Is(err, exists):
		e.Existed++
		return nil
	}
	return err
}
