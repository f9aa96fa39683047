// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"imbang/internal/version"
)

func TestVersionIsParsed(t *testing.T) {
	defer func(c string) { version.Commit = c }(version.Commit)
	version.Commit = "0123abc-dirty"
	var out, errs strings.Builder
	if status := Execute(t.Context(), NewRoot("p", "", "", NewVersion()), []string{"version"}, nil, &out, &errs); status != StatusOK {
		t.Fatal(errs.String())
	}
	var flag strings.Builder
	if status := Execute(t.Context(), NewRoot("p", "", "", NewVersion()), []string{"--version"}, nil, &flag, &errs); status != StatusOK || flag.String() != out.String() {
		t.Errorf("--version: status %d, %q, want %q", status, flag.String(), out.String())
	}
	number, revision, err := ParseVersion(out.String())
	if err != nil || number != version.Version || revision != "0123abc-dirty" {
		t.Errorf("%q: %q, %q, %v", out.String(), number, revision, err)
	}
	if _, revision, err := ParseVersion("imbang v1 (revision unknown, go1.26)\n"); err != nil || revision != "" {
		t.Errorf("unknown: %q, %v", revision, err)
	}
	if _, _, err := ParseVersion("usage: something\n"); err == nil {
		t.Error("another program's output is a version")
	}
}

func TestVersionAsJSON(t *testing.T) {
	defer func(c string) { version.Commit = c }(version.Commit)
	version.Commit = "0123abc"
	var out, errs strings.Builder
	if status := Execute(t.Context(), NewRoot("p", "", "", NewVersion()), []string{"version", "--output", "json"}, nil, &out, &errs); status != StatusOK {
		t.Fatal(errs.String())
	}
	var v Version
	if err := json.Unmarshal([]byte(out.String()), &v); err != nil || v != (Version{"p", version.Version, "0123abc", runtime.Version()}) {
		t.Errorf("%s: %+v, %v", out.String(), v, err)
	}
}
