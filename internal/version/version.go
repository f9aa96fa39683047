// SPDX-License-Identifier: Apache-2.0

// Package version says which version of imbang a program is built from. Both
// programs are built from one tree, so they share it.
package version

import "runtime/debug"

// Version is set by the linker (-X imbang/internal/version.Version=...); a
// plain `go build` leaves it.
var Version = "devel"

// Revision is the commit that this program was built from, or "" if the build
// did not record it.
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
