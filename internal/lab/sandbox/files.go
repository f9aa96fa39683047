// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/jsonfile"
)

// StateDir has a directory for each cluster.
const StateDir = "/run/imbang-lab"

// prefix begins the names of the namespaces.
const prefix = "imbang-up"

func run(name string) host.Run { return host.NamedRun(prefix, name) }

func dir(name string) string      { return filepath.Join(StateDir, name) }
func binDir(name string) string   { return filepath.Join(dir(name), "bin") }
func describe(name string) string { return filepath.Join(dir(name), "cluster.json") }

// lock keeps other commands from building or removing clusters until the
// returned function is called, which also removes the directory of all clusters
// if there are none. The lock is of the kernel, which releases it when the
// process ends.
func lock() (unlock func(), err error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	for {
		if err := os.MkdirAll(StateDir, 0o755); err != nil {
			return nil, err
		}
		f, err := os.Open(StateDir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another command has just removed it
		}
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", StateDir, err)
		}
		if stillThere(f) {
			return func() {
				_ = os.Remove(StateDir) // fails while there are clusters
				f.Close()
			}, nil
		}
		f.Close()
	}
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("not permitted: network namespaces require root; run it with sudo")
	}
	return nil
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// stillThere reports whether an open directory is the one of that name.
func stillThere(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(opened, named)
}

// save writes a cluster's description, whole or not at all.
func (c *Cluster) save() error { return jsonfile.Write(describe(c.Spec.Name), c) }

// Find reads a cluster's description.
func Find(name string) (*Cluster, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(describe(name))
	if errors.Is(err, fs.ErrNotExist) {
		if left, _ := host.NamespacesOf(run(name)); len(left) == 0 {
			return nil, fmt.Errorf("%w: %s (build it with: imbang-lab up --name %s)", ErrNone, name, name)
		}
		return &Cluster{Spec: Spec{Name: name}}, nil // the rest of a command that was killed
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", describe(name), err)
	}
	c.look()
	return c, nil
}

// ErrNone says that there is no cluster of a name.
var ErrNone = errors.New("no such cluster")

// Names lists the clusters, also unfinished ones.
func Names() ([]string, error) {
	entries, err := os.ReadDir(StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
