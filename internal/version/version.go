// SPDX-License-Identifier: Apache-2.0

// Package version says which version of imbang a program is built from. Both
// programs are built from one tree, so they share it.
package version

import (
	"runtime/debug"
	"strings"
)

// Set by the linker (-X imbang/internal/version.Version=...); a plain `go
// build` leaves them.
var (
	// Version is the nearest tag or the abbreviated commit.
	Version = "devel"
	// Commit is the whole hash of the commit, followed by Dirty if the tree had
	// other changes.
	Commit = ""
)

// Dirty follows the hash of a commit when the tree had changes besides.
const Dirty = "-dirty"

// Revision is the commit that this program was built from, as in Commit, or ""
// if the build did not record it.
func Revision() string {
	if Commit != "" {
		return Commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision != "" && settings["vcs.modified"] == "true" {
		revision += Dirty
	}
	return revision
}

// Split separates a revision into the commit and whether the tree had other
// changes.
func Split(revision string) (commit string, modified bool) {
	return strings.CutSuffix(revision, Dirty)
}
