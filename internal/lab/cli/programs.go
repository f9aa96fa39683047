// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"

	"imbang/internal/command"
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
