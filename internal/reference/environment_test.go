// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/director"
)

const root = "../.."

// eachFile parses the Go files of both programs, without tests.
func eachFile(t *testing.T, do func(path string, f *ast.File)) {
	t.Helper()
	files := 0
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil || strings.HasPrefix(name, "internal/testenv/") || strings.HasPrefix(name, "internal/reference/") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				files++
				do(name, f)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 200 {
		t.Fatalf("only %d files", files)
	}
}

// called is the name of a called function, such as os.Getenv.
func called(c *ast.CallExpr) string {
	if s, is := c.Fun.(*ast.SelectorExpr); is {
		if x, is := s.X.(*ast.Ident); is {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// The environment variables of the page are those that the programs read.
func TestVariablesAreThoseOfTheCode(t *testing.T) {
	read := map[string]string{}
	eachFile(t, func(path string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			c, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			switch called(c) {
			case "os.Getenv", "os.LookupEnv":
				switch name := c.Args[0].(type) {
				case *ast.BasicLit:
					text, _ := strconv.Unquote(name.Value)
					read[text] = path
				case *ast.Ident:
					if name.Name != "LockTimeoutVariable" {
						t.Errorf("%s: reads a variable by the name %s, which this test does not know", path, name.Name)
					}
					read[director.LockTimeoutVariable] = path
				default:
					t.Errorf("%s: reads a variable whose name this test cannot find", path)
				}
			case "os.TempDir", "os.MkdirTemp", "os.CreateTemp":
				read["TMPDIR"] = path
			case "exec.LookPath":
				read["PATH"] = path
			case "os.ExpandEnv", "os.UserHomeDir", "os.UserCacheDir", "os.UserConfigDir":
				t.Errorf("%s: %s reads variables that the page does not name", path, called(c))
			}
			return true
		})
	})
	var named []string
	for _, v := range variables {
		named = append(named, v.name)
	}
	slices.Sort(named)
	if got := slices.Sorted(maps.Keys(read)); !slices.Equal(got, named) {
		t.Errorf("the programs read %q, the page has %q (%v)", got, named, read)
	}
}

// The page has all statuses, every file that gives status 1, and no others.
func TestStatusesAreThoseOfTheCode(t *testing.T) {
	gives := map[string]bool{}
	var constants []string
	eachFile(t, func(path string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if n.Sel.Name == "ErrNotAsExpected" {
					gives[path] = true
				}
			case *ast.ValueSpec:
				if path == "internal/command/command.go" && strings.HasPrefix(n.Names[0].Name, "Status") {
					constants = append(constants, n.Names[0].Name)
				}
			}
			return true
		})
	})
	if len(constants) != len(statuses) {
		t.Errorf("the code has the statuses %q, the page %v", constants, statuses)
	}
	named := map[string]bool{}
	for _, c := range notAsExpected {
		named[c.file] = true
	}
	if !maps.Equal(gives, named) {
		t.Errorf("status 1 comes from %q, the page has %q", slices.Sorted(maps.Keys(gives)), slices.Sorted(maps.Keys(named)))
	}
}

// The page has every map and program, and no other map.
func TestMapsAreThoseOfTheObject(t *testing.T) {
	spec, err := bpfobj.LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		if table := bpfobj.TableName(name); table != "" && bpfMaps[table].contents == "" {
			t.Errorf("map %s is not described", table)
		}
	}
	policies := director.MapPolicies()
	for name := range bpfMaps {
		if spec.Maps[bpfobj.MapName(name)] == nil {
			t.Errorf("there is no map %s", name)
		}
		if p, known := policies[name]; !known || upgradeOf[p] == "" {
			t.Errorf("map %s: upgrade %q", name, p)
		}
	}
	for name, p := range spec.Programs {
		if programKinds[p.Type] == "" {
			t.Errorf("program %s: type %v", name, p.Type)
		}
	}
}
