// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/importer"
	"imbang/internal/lab/study"
	"imbang/studies"
)

// importLogs holds the flags of `imbang-lab import`.
type importLogs struct {
	study  string
	output command.OutputFlag
}

// noStudy is the --study that sets nothing beside the runs.
const noStudy = "none"

func newImportCommand() *cobra.Command {
	var f importLogs
	c := &cobra.Command{
		Use:   "import FILE... | import --study STUDY",
		Short: "Read the output of httperf, ab, siege or wrk, and list what it shows",
		Long: `Read the output of other load tools. Prints one table of all runs and lists their
limits: a client that ran out of descriptors, a rate that was not reached, replies
that were redirects or errors, runs that were too short or not repeated, and others.
Nothing is measured and nothing is sent.

FILE is the output of a tool, standard error included:

  httperf  0.8 and 0.9; several runs in one file are separated
  ab       ApacheBench of Apache 1.3 to 2.4, not its HTML (-w)
  siege    2 to 4, as text or JSON (-j)
  wrk      3 and 4, with or without --latency; wrk2 is another tool

The tool is recognised by the content. In a directory, all *.txt and *.log files are
read, also in directories below it. Windows line ends and terminal colours are accepted.
A file that cannot be read, is truncated or has another format is reported in one line
on standard error; the others are reported, and the exit status is 3.

Logs of httperf named SCHEDULER-RATE.txt, such as rr-2000.txt, are the cells of
tables with a column for each scheduler and a row for each planned rate. Several runs
of a cell, in several directories or in one file, are printed as median and range.

Units and definitions:

  KB          1024 bytes
  throughput  httperf: requests and replies (its Net I/O); the others: replies.
              Headers are included
  response    httperf: from the first byte of the request to that of the reply
  time        ab: its first "Time per request", concurrency x duration / requests
              siege: mean of all transactions
              wrk: mean latency, without requests that timed out

Response times of different tools are not comparable.

With --study, the published figures of the study are printed above those of the runs.
Cells that differ by more than the rounding of one decimal are listed, and which of
httperf's times is the published response time. Without --study, a built-in study is
chosen if all files are its cells and their requests went to its published address;
--study none prevents that.

--study without a file checks the published figures alone: whether the text and
the tables agree, and what the publication says about the replies.`,
		Example: "  imbang-lab import httperf.log\n" +
			"  imbang-lab import --study thesis logs/\n" +
			"  imbang-lab import --study single-vs-cluster\n" +
			"  imbang-lab import ab-*.txt wrk.txt -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.study != "" && f.study != noStudy {
				return nil
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	c.Flags().StringVar(&f.study, "study", "", "compare the runs with the published figures of this study: "+
		strings.Join(studies.Names(), ", ")+", the path of a YAML file, or "+noStudy)
	_ = c.RegisterFlagCompletionFunc("study", cobra.FixedCompletions(append(studies.Names(), noStudy), cobra.ShellCompDirectiveDefault))
	f.output.Register(c, command.One[importer.Report](""))
	return c
}

func (f *importLogs) run(cmd *cobra.Command, paths []string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	chosen, err := f.chosen()
	if err != nil {
		return command.Usage(err)
	}
	runs, refused, files := importAll(paths)
	for _, line := range refused {
		fmt.Fprintf(cmd.ErrOrStderr(), "imbang-lab: %s\n", line)
	}
	if chosen == nil && f.study == "" {
		chosen = recognised(runs)
	}
	rep := importer.New(runs, chosen)
	rep.Refused = refused
	if len(runs) > 0 || len(paths) == 0 || f.output.Format == "json" {
		if err := f.output.Print(cmd.OutOrStdout(), rep, rep.Text); err != nil {
			return err
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%d runs read from %d files; what could not be read is listed above", len(runs), files)
	}
	return nil
}

// chosen is the study that --study names.
func (f *importLogs) chosen() (*study.Study, error) {
	if f.study == "" || f.study == noStudy {
		return nil, nil
	}
	s, err := study.Find(f.study, engine.Described())
	if err != nil {
		return nil, err
	}
	if s.Published == nil || len(s.Published.Tables) == 0 {
		return nil, fmt.Errorf("--study %s: it publishes no tables: leave the flag out", f.study)
	}
	return s, nil
}

// recognised is the built-in study whose published runs these are, if any.
func recognised(runs []importer.Result) *study.Study {
	for _, name := range studies.Names() {
		if s, err := study.Find(name, engine.Described()); err == nil && importer.Published(runs, s) {
			return s
		}
	}
	return nil
}

// importAll reads files and directories. What cannot be read is said in lines.
func importAll(paths []string) (runs []importer.Result, refused []string, files int) {
	for _, path := range paths {
		found, err := outputs(path)
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		for _, name := range found {
			files++
			rs, err := importFile(name)
			runs = append(runs, rs...)
			if err != nil {
				refused = append(refused, strings.Split(err.Error(), "\n")...)
			}
		}
	}
	return runs, refused, files
}

func importFile(name string) ([]importer.Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, openError(name, err)
	}
	defer f.Close()
	return importer.Parse(f, name)
}

// outputs is a file itself, or the outputs in a directory.
func outputs(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, openError(path, err)
	case !info.IsDir() && !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0:
		return nil, fmt.Errorf("%s: neither a file nor a directory: give what a tool printed", path)
	case !info.IsDir():
		return []string{path}, nil
	}
	var found []string
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && slices.Contains([]string{".txt", ".log"}, filepath.Ext(name)) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		return nil, openError(path, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no *.txt or *.log in this directory: name the files", path)
	}
	return found, nil
}

// openError is a path's error without the name of the system call.
func openError(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		path, err = at.Path, at.Err
	}
	return fmt.Errorf("%s: %w: check the name and your rights", path, err)
}
