// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Look finds a program; distributions keep some in directories that are not
// always on the PATH. The error ends with the remedy.
func Look(name, remedy string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: %s", name, remedy)
}

var versionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+\.[0-9][\w.+~-]*`) })

// VersionOf is the first thing like a version that a program says of itself.
func VersionOf(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if v := versionForm().Find(out); v != nil {
		return string(v), nil
	}
	return "", fmt.Errorf("%s %s says %q: %w", path, strings.Join(args, " "), out, err)
}

// Said are the lines of a program's log, without the blanks around them; one
// empty line if there are none.
func Said(log string) []string {
	b, _ := os.ReadFile(log)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
