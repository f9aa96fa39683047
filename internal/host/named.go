// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// NamedRun names what outlives the process that makes it: PREFIX-NAME-ROLE.
// Sweep never removes it, as long as the name does not begin with a digit.
func NamedRun(prefix, name string) Run { return Run{prefix + "-" + name} }

// OpenNamespace opens a network namespace by the name that NewNamespace or
// `ip netns add` gave it. Close removes it, Release does not.
func OpenNamespace(name string) (*Namespace, error) {
	n := &Namespace{name: name}
	if err := n.hold(); err != nil {
		n.Release()
		return nil, fmt.Errorf("network namespace %s: %w", name, needRoot(err))
	}
	return n, nil
}

// Release closes the descriptors of a namespace and leaves the namespace as it
// is. The handle is not usable afterwards.
func (n *Namespace) Release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.handle != nil {
		n.handle.Close()
	}
	if n.file != nil {
		n.file.Close()
	}
}

// NamespacesOf lists the network namespaces that a run has on this machine.
func NamespacesOf(r Run) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), r.stem+"-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// RemoveNamespace removes a network namespace by its name, with the processes
// inside. It also removes one whose creation was interrupted.
func RemoveNamespace(name string) error { return removeNamespace(name) }

// KillInside kills the processes of a network namespace and waits, at most two
// seconds, until they are out of it. This process is not among them.
func KillInside(name string) { killInside(filepath.Join(netnsDir, name)) }

// PIDsInside lists the processes of a network namespace.
func PIDsInside(name string) []int {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(netnsDir, name), &st) != nil {
		return nil
	}
	return pidsInside(st)
}
