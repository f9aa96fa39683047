// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Version is which HAProxy it is, and what it was built with.
type Version struct {
	Major, Minor int
	Text         string // such as 2.6.12-1+deb12u4
	Features     map[string]bool
}

// Oldest is the first version whose configuration language is rendered.
var oldest = Version{Major: 2, Minor: 6}

var versionLine = regexp.MustCompile(`(?m)^HA-?Proxy version (([0-9]+)\.([0-9]+)\S*)`)

// ParseVersion reads what `haproxy -vv` prints.
func ParseVersion(text string) (Version, error) {
	m := versionLine.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("haproxy -vv prints no line %q: is it HAProxy?", "HAProxy version ...")
	}
	v := Version{Text: m[1], Features: map[string]bool{}}
	v.Major, _ = strconv.Atoi(m[2])
	v.Minor, _ = strconv.Atoi(m[3])
	for line := range strings.Lines(text) {
		list, found := strings.CutPrefix(line, "Feature list :")
		if !found {
			continue
		}
		for _, f := range strings.Fields(list) {
			v.Features[f[1:]] = f[0] == '+'
		}
	}
	if !v.AtLeast(oldest.Major, oldest.Minor) {
		return v, fmt.Errorf("HAProxy %s: imbang requires 2.6 or later: install Debian 12's or later", v.Text)
	}
	if !v.Features["OPENSSL"] {
		return v, fmt.Errorf("HAProxy %s is built without OpenSSL: install Debian's", v.Text)
	}
	return v, nil
}

// AtLeast is true for that version and later ones.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String is the program with its version, for messages.
func (v Version) String() string { return "HAProxy " + v.Text }

// Detect asks a program for its version.
func Detect(ctx context.Context, program string) (Version, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-vv")
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return Version{}, notRun(program, "-vv", err, said.String())
	}
	return ParseVersion(out.String())
}

// notRun is the error of a program that could not be run, or has failed where HAProxy does not, with what it said.
func notRun(program, argument string, err error, said string) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: install the package haproxy", program, err)
	}
	if said = strings.Join(strings.Fields(said), " "); said != "" {
		err = fmt.Errorf("%w: %s", err, strings.Map(visible, said[:min(len(said), longestCause)]))
	}
	return fmt.Errorf("%s %s: %w: repair this program, as by apt-get install --reinstall haproxy", program, argument, err)
}

// longestCause bounds what is quoted of a program that fails [bytes].
const longestCause = 500
