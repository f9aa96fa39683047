// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// freezer is a control group whose processes can be frozen: unlike stopped ones they do not
// notice, and their parents are not told.
type freezer struct {
	dir          string
	file         string // that freezes
	freeze, thaw string // what is written to it
	state        string // the file that says so
	frozen       string // a line of it
}

// freezers are the hierarchies that have one, by their mount's type and option.
var freezers = []struct {
	kind, option string
	freezer      freezer
}{
	{"cgroup2", "", freezer{file: "cgroup.freeze", freeze: "1", thaw: "0", state: "cgroup.events", frozen: "frozen 1"}},
	{"cgroup", "freezer", freezer{file: "freezer.state", freeze: "FROZEN", thaw: "THAWED", state: "freezer.state", frozen: "FROZEN"}},
}

// freezerMount finds where control groups that freeze are mounted.
func freezerMount() (root string, f freezer, err error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", f, err
	}
	defer mounts.Close()
	found := map[int]string{}
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		for i, kind := range freezers {
			options := "," + fields[3] + ","
			if fields[2] == kind.kind && (kind.option == "" || strings.Contains(options, ","+kind.option+",")) && strings.Contains(options, ",rw,") {
				found[i] = fields[1]
			}
		}
	}
	for i, kind := range freezers {
		if at, has := found[i]; has {
			return at, kind.freezer, nil
		}
	}
	return "", f, errors.New("no control groups that freeze processes are mounted: mount -t cgroup2 none /sys/fs/cgroup")
}

// newFreezer makes a control group with the processes that a list has. It is asked twice: what
// those of the first list start meanwhile is in the second one, and later ones are in the
// group from the beginning.
func newFreezer(name string, pids func() []int) (*freezer, error) {
	root, f, err := freezerMount()
	if err != nil {
		return nil, err
	}
	f.dir = filepath.Join(root, name)
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	for range 2 {
		for _, pid := range pids() {
			err := f.write("cgroup.procs", strconv.Itoa(pid))
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return nil, errors.Join(err, f.close())
			}
		}
	}
	return &f, nil
}

func (f *freezer) write(file, text string) error {
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0o644); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// set freezes all processes, or has them run again.
func (f *freezer) set(frozen bool) error {
	if frozen {
		return f.write(f.file, f.freeze)
	}
	return f.write(f.file, f.thaw)
}

// isFrozen reports whether all of them are.
func (f *freezer) isFrozen() bool {
	b, err := os.ReadFile(filepath.Join(f.dir, f.state))
	return err == nil && strings.Contains("\n"+string(b), "\n"+f.frozen+"\n")
}

// close removes the control group, whose processes run again and are elsewhere afterwards.
func (f *freezer) close() error {
	if err := f.set(false); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(f.dir, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	for _, pid := range strings.Fields(string(b)) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(f.dir), "cgroup.procs"), []byte(pid), 0o644) // it may have ended
	}
	// One that ends is a member until its parent has seen it.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(f.dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove a control group: %w", err)
		}
	}
}

// sweepFreezers removes the control groups of runs that were killed.
func sweepFreezers() {
	root, f, err := freezerMount()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if host.Orphaned(topology.Prefix, e.Name()) {
			f.dir = filepath.Join(root, e.Name())
			_ = f.close()
		}
	}
}
