// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"imbang/internal/command"
	"imbang/internal/lab/record"
	"imbang/internal/version"
)

// programs are imbang's own programs that the lab runs in network namespaces.
type programs struct {
	imbang string // the director's commands
	lab    string // this program, as a real server and for one part of the suite
}

// findPrograms finds them; a test has others.
var findPrograms = func() (p programs, err error) {
	if p.lab, err = os.Executable(); err != nil {
		return p, fmt.Errorf("find this program's own file: %w", err)
	}
	p.imbang, err = command.Sibling("imbang")
	return p, err
}

// builds says what both programs were built from; imbang, which may be of
// another build than this program, is asked.
func (p programs) builds(ctx context.Context) (map[string]record.Build, error) {
	out, err := exec.CommandContext(ctx, p.imbang, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s version: %w", p.imbang, err)
	}
	number, revision, err := command.ParseVersion(string(out))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.imbang, err)
	}
	return map[string]record.Build{
		"imbang":     build(number, revision),
		"imbang-lab": build(version.Version, version.Revision()),
	}, nil
}

func build(number, revision string) record.Build {
	commit, modified := version.Split(revision)
	return record.Build{Version: number, Commit: commit, Modified: modified}
}
