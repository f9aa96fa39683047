// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testCommand = regexp.MustCompile(`go test .*-run (?:'([^']+)'|(\S+)) \./(\S+)`)
	makeCommand = regexp.MustCompile("(?m)(?:^|`)(?:sudo )?make ([a-z][a-z0-9.-]*)(?:[ `]|$)")
)

// A command in the documentation that runs tests names some, and one that calls
// make names a target.
func TestCommandsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests, targets := 0, 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, m := range testCommand.FindAllStringSubmatch(text, -1) {
			tests++
			if named := regexp.MustCompile(`func Test\w*` + m[1] + m[2]); !inTests(t, m[3], named) {
				t.Errorf("%s: %s runs no test", page, m[0])
			}
		}
		for _, m := range makeCommand.FindAllStringSubmatch(text, -1) {
			targets++
			if !strings.Contains("\n"+string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", page, m[1])
			}
		}
	}
	if tests == 0 || targets == 0 {
		t.Errorf("%d commands run tests, %d call make: the expressions find none", tests, targets)
	}
}

// inTests reports whether a test file of a package has such a line.
func inTests(t *testing.T, dir string, line *regexp.Regexp) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if line.Match(text) {
			return true
		}
	}
	return false
}
