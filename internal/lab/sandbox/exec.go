// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"imbang/internal/host"
)

// Exec replaces this process by a command inside a node, so that streams,
// signals and the exit status are the command's own. /sys shows the node's
// devices. It returns only an error.
// `imbang`, `imbang-lab` and `ipvsadm` are those that the cluster was built
// with.
func (c *Cluster) Exec(node string, argv []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	n, err := c.Node(node)
	if err != nil {
		return err
	}
	ns, err := host.OpenNamespace(n.Namespace)
	if err != nil {
		return err
	}
	// LookPath reads this process's PATH.
	if err := os.Setenv("PATH", searchPath(c.Spec.Name)); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return &NotRun{err}
	}
	err = ns.Exec(path, argv, os.Environ())
	if not := (*host.MountError)(nil); errors.As(err, &not) {
		return err
	}
	return &NotRun{fmt.Errorf("%s: %w", path, err)}
}

// NotRun is an error of a command that could not be started.
type NotRun struct{ error }

func (e *NotRun) Unwrap() error { return e.error }

// Status is the exit status that a shell gives for it: 127 for a command that
// was not found, else 126.
func (e *NotRun) Status() int {
	if errors.Is(e.error, exec.ErrNotFound) || errors.Is(e.error, os.ErrNotExist) {
		return 127
	}
	return 126
}
