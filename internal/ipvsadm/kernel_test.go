// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/director"
	"imbang/internal/director/directortest"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// notYet are the recordings that do not come out of a director's tables, with
// the reason. One that does fails the test: it has to leave the list.
var notYet = map[string]string{}

// kernelTable is a director that knows what the recorded Linux had besides.
type kernelTable struct {
	*director.Director
	linux *linuxExtras
}

// linuxExtras are what no director has: connections of that time, and the order
// of services that came of an address in Linux's memory.
type linuxExtras struct {
	*fakeTable // for its hash and its connections
}

func (k kernelTable) Services() ([]model.ServiceStatus, error) {
	all, err := k.Director.Services()
	return k.linux.hashed(all), err
}

func (k kernelTable) Connections() iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, all := range []iter.Seq2[model.Connection, error]{
			k.Director.Connections(director.ConnectionFilter{}), k.linux.Connections(),
		} {
			for c, err := range all {
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

func (k kernelTable) Batch(edit func(Table) error) error {
	return k.Director.Batch(func() error { return edit(k) })
}

// onDirector runs a command line in a namespace, as a process would: it opens
// the director, and nothing of it is left in memory.
func onDirector(t *testing.T, ns *host.Namespace, wrap func(*director.Director) Table, daemons Daemons, args []string, stdin string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	var status int
	err := ns.Do(func() error {
		var d *director.Director
		status = run(args, strings.NewReader(stdin), &stdout, &stderr, func() (_ Table, err error) {
			d, err = director.OpenOrLoad(tableSizes)
			if err != nil {
				return nil, err
			}
			return wrap(d), nil
		}, daemons, testNames())
		if d == nil {
			return nil
		}
		return d.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), status}
}

// outcome is what a command line did.
type outcome struct {
	Stdout, Stderr string
	Status         int
}

// tableSizes are those of the directors here.
var tableSizes = director.Sizes{Services: 256, Servers: 1024, Connections: 1024}

// emptyNamespace is a namespace whose director goes away with it.
func emptyNamespace(t *testing.T) *host.Namespace {
	t.Helper()
	ns := testenv.Namespace(t, "table")
	directortest.Make(t, ns, tableSizes)
	return ns
}

// TestTranscriptsInTheKernel replays what was recorded on tables in the kernel; daemons are
// those of the other test.
func TestTranscriptsInTheKernel(t *testing.T) {
	testenv.Root(t)
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			differences := playInTheKernel(t, file)
			reason, expected := notYet[name]
			switch {
			case expected && len(differences) == 0:
				t.Errorf("as Linux, though %q: take it out of notYet", reason)
			case !expected:
				for _, d := range differences {
					t.Error(d)
				}
			}
		})
	}
}

func playInTheKernel(t *testing.T, file string) (differences []string) {
	t.Helper()
	r, fake := load(t, file)
	ns := emptyNamespace(t)
	linux, daemons := &linuxExtras{fake}, r.daemons()
	wrap := func(d *director.Director) Table { return kernelTable{d, linux} }
	for _, c := range r.Transcript {
		args := []string{"-C"}
		if !c.Clear {
			args = c.Argv[1:]
		}
		want := outcome{c.Stdout, c.Stderr, c.Status}
		if diff := cmp.Diff(want, onDirector(t, ns, wrap, daemons, args, c.Stdin)); diff != "" {
			differences = append(differences, strings.Join(args, " ")+" (-want +got):\n"+diff)
		}
	}
	return differences
}
