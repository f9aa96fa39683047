// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestLabArguments(t *testing.T) {
	for args, want := range map[string]string{
		"lab":                       "",
		"lab run thesis --quick":    "run thesis --quick",
		"lab run --help":            "run --help",
		"bench":                     "bench",
		"bench flood -o json":       "bench flood -o json",
		"conform a.json":            "conform a.json",
		"help lab run":              "help run",
		"help bench":                "help bench",
		"__complete lab r":          "__complete r",
		"__completeNoDesc bench f":  "__completeNoDesc bench f",
		"__complete conform --mode": "__complete conform --mode",
	} {
		got, is := labArguments(strings.Fields(args))
		if !is || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q becomes %q, %v; want %q", args, got, is, want)
		}
	}
	for _, args := range []string{"", "help", "status lab", "__complete lab", "__complete status l", "help status", "--help", "labs"} {
		if got, is := labArguments(strings.Fields(args)); is {
			t.Errorf("%q becomes %q of imbang-lab", args, got)
		}
	}
}
