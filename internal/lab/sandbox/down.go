// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"

	"imbang/internal/director"
	"imbang/internal/host"
)

// Down removes a cluster: processes, directors, namespaces, files. It does not
// need the cluster's description, so it also removes one that is unfinished.
// It reports whether there was anything to remove.
func Down(name string) (removed bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	unlock, err := lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	return down(name)
}

// down is Down for a caller that holds the lock.
func down(name string) (removed bool, err error) {
	spaces, err := host.NamespacesOf(run(name))
	if err != nil {
		return false, err
	}
	var errs []error
	for _, s := range spaces {
		// Processes first: one of them may be loading a director.
		host.KillInside(s)
		errs = append(errs, detach(s), host.RemoveNamespace(s))
	}
	_, missing := os.Stat(dir(name))
	errs = append(errs, os.RemoveAll(dir(name)))
	if err := errors.Join(errs...); err != nil {
		return false, fmt.Errorf("remove cluster %s: %w", name, err)
	}
	return len(spaces) > 0 || missing == nil, nil
}

// detach removes the director of a namespace, if there is one: its pins would
// outlive the namespace.
func detach(namespace string) error {
	ns, err := host.OpenNamespace(namespace)
	if err != nil {
		return nil // its creation was interrupted: nothing ran inside
	}
	defer ns.Release()
	err = ns.Do(func() error { return director.Detach(true) })
	if errors.Is(err, director.ErrNotLoaded) {
		return nil
	}
	return err
}
