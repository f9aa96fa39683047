// SPDX-License-Identifier: Apache-2.0

// Package extension tries what it takes to extend the data plane: a made-up
// scheduler with a map of its own, and a made-up forwarding method, as
// ARCHITECTURE.md walks through them.
package extension

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is where the tree is.
const root = "../../.."

// edit puts a text behind another one in a file.
type edit struct{ file, behind, text string }

// extension is what is new in testdata, but for tests, and edits of the tree.
type extension struct {
	dir    string // in testdata
	edits  []edit
	places int // files touched, at most
}

var extensions = []extension{
	{
		dir: "scheduler", places: 5,
		edits: []edit{
			{"bpf/sched/list.h", "X(RR, rr, 1)", " X(STICK, stick, 99)"},
			{"bpf/sched.h", "#include \"sched/rr.h\"\n", "#include \"sched/stick.h\"\n"},
			{"internal/model/scheduler.go", "var schedulers = []Scheduler{\n", "{Name: \"stick\", Number: 99},\n"},
			{"internal/director/schedulers.go", "var memories = []memory{\n", `{
				name: "sticks", of: func(m *bpfobj.LbMaps) *ebpf.Map { return m.Sticks },
				schedulers: []string{"stick"},
				names: func(element []byte, is func(uint32) bool) bool { return is(word(element, 0)) },
			},
			`},
		},
	},
	{
		dir: "method", places: 8,
		edits: []edit{
			{"bpf/types.h", "FORWARD_ROUTE = 3,\n", "FORWARD_L3DSR = 4,\n"},
			{"bpf/forward/method.h", "rewrites_address(__u32 forward)\n{\n\treturn ", "forward == FORWARD_L3DSR || "},
			{"bpf/forward/deliver.h", "#include \"hairpin.h\"\n", "#include \"l3dsr.h\"\n"},
			{"bpf/forward/deliver.h", "return direct(skb, p);\n", "case FORWARD_L3DSR: return l3dsr(skb, p);\n"},
			{"internal/model/forward.go", "Route      Forward = 3\n", "L3DSR Forward = 4\n"},
			{"internal/model/forward.go", "var methods = []method{\n", "L3DSR: {word: \"L3DSR\", long: \"l3dsr\"},\n"},
		},
	},
}

// Both are put into a copy of the tree, which is compiled, loaded and tried by
// their own tests there.
func TestExtensions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("needs clang: compiles the data plane")
	}
	tree := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "bpf", "internal"} {
		must(t, copyTree(filepath.Join(root, name), filepath.Join(tree, name)))
	}
	for _, e := range extensions {
		touched, err := e.apply(tree)
		must(t, err)
		t.Logf("the %s touches %s", e.dir, strings.Join(touched, ", "))
		if len(touched) > e.places {
			t.Errorf("the %s touches %d places, want %d at most", e.dir, len(touched), e.places)
		}
	}
	run(t, tree, "go", "generate", "-run", "lb.bpf.c|fingerprint", "./internal/bpfobj")
	out := run(t, tree, "go", "test", "-vet=off", "-count=1", "-v", "-run", "^TestMadeUp|^TestListsAgree$|^TestMemories$", "./internal/director")
	for _, test := range []string{"TestMadeUpScheduler", "TestMadeUpMethod", "TestListsAgree", "TestMemories"} {
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s did not run:\n%s", test, out)
		}
	}
}

// apply makes the edits in a tree, and copies what is new there. It returns the
// files touched, but for tests.
func (e *extension) apply(tree string) (touched []string, err error) {
	for _, one := range e.edits {
		path := filepath.Join(tree, one.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		before, after, found := bytes.Cut(text, []byte(one.behind))
		if !found {
			return nil, fmt.Errorf("%s has no %q", one.file, one.behind)
		}
		text = slices.Concat(before, []byte(one.behind), []byte(one.text), after)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
		touched = append(touched, one.file)
	}
	from := filepath.Join("testdata", e.dir)
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(from, path)
		touched = append(touched, name)
		return err
	})
	if err == nil {
		err = copyTree(from, tree)
	}
	slices.Sort(touched)
	return slices.Compact(touched), err
}

// copyTree copies a file, or a directory without what tests read.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	})
}

// run runs a command in the tree and returns what it says. Where the kernel's
// user-space headers keep asm/types.h differs from machine to machine.
func run(t *testing.T, tree, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = tree
	cmd.Env = os.Environ()
	if headers, _ := filepath.Glob("/usr/include/*/asm/types.h"); os.Getenv("BPF_CFLAGS") == "" && len(headers) > 0 {
		cmd.Env = append(cmd.Env, "BPF_CFLAGS=-idirafter "+filepath.Dir(filepath.Dir(headers[0])))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
