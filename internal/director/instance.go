// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/host"
)

// StateDir holds a BPF file system of our own. /sys/fs/bpf is not suitable:
// `ip netns exec` mounts a fresh /sys over it, and a director loaded there
// could not be found again from outside.
const StateDir = "/run/imbang"

// instance names the director of one network namespace.
type instance struct {
	// home is 0, or a process whose mounts are the machine's, when this one
	// lives in a mount namespace of its own (ip netns exec makes one): what
	// is mounted there goes away with the process.
	home int
	// cookie is the kernel's number of the network namespace. It is never
	// used twice, unlike an inode number.
	cookie uint64
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("not permitted: BPF needs root (CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN); run it with sudo")
	}
	return nil
}

// currentInstance is that of the calling thread.
func currentInstance() (instance, error) {
	in, err := thisInstance()
	in.home = mountsElsewhere()
	return in, err
}

// reachableInstance is currentInstance for those who only open what is pinned:
// if the pins are seen from here, other mount namespaces need not be searched.
func reachableInstance() (instance, error) {
	in, err := thisInstance()
	if _, missing := os.Stat(in.dir()); missing != nil {
		in.home = mountsElsewhere()
	}
	return in, err
}

// thisInstance is one as this process's mounts show it.
func thisInstance() (instance, error) {
	if err := needRoot(); err != nil {
		return instance{}, err
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return instance{}, fmt.Errorf("network namespace: %w", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return instance{}, fmt.Errorf("network namespace: the kernel gives no SO_NETNS_COOKIE (Linux 5.14 or later is needed): %w", err)
	}
	return instance{cookie: cookie}, nil
}

// mountsElsewhere is the eldest ancestor that may be looked at, if its mount
// namespace is not ours, else 0. The first process need not be among them: in
// a container it may be closed even to root.
func mountsElsewhere() int {
	ns := func(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)) }
	own, err := ns(os.Getpid())
	if err != nil {
		return 0
	}
	if first, err := ns(1); err == nil && first == own {
		return 0 // the usual case, told by one look
	}
	eldest := 0
	for pid := os.Getppid(); pid > 0; pid = parent(pid) {
		if theirs, err := ns(pid); err == nil {
			eldest = 0
			if theirs != own {
				eldest = pid
			}
		}
	}
	return eldest
}

// parent is the process id of a process's parent, 0 if there is none (field 4
// of proc_pid_stat(5), behind the command in brackets).
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var state string
	var ppid int
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &ppid)
	if err != nil {
		return 0
	}
	return ppid
}

// base is the state directory as this process reaches it.
func (in instance) base() string {
	if in.home != 0 {
		return fmt.Sprintf("/proc/%d/root%s", in.home, StateDir)
	}
	return StateDir
}

func (in instance) dir() string {
	return filepath.Join(in.base(), "bpf", strconv.FormatUint(in.cookie, 10))
}

// holdBase keeps the state directory and its file system from being removed
// by a director that ends (sweep), until the returned file is closed.
func (in instance) holdBase() (*os.File, error) {
	for {
		f, err := os.Open(in.base())
		if err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		if err := acquire(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("state directory: %w", err)
		}
		if stillThere(f) {
			return f, nil
		}
		f.Close()
	}
}

// mount makes sure that there is a BPF file system to pin in.
func (in instance) mount() error {
	point := filepath.Join(in.base(), "bpf")
	if err := host.MakeSecret(point); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(point, &fs); err == nil && fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	mount := func() error {
		return unix.Mount("bpf", filepath.Join(StateDir, "bpf"), "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
	}
	if err := in.atHome(mount); err != nil {
		return fmt.Errorf("mount a BPF file system on %s: %w", point, err)
	}
	return nil
}

// atHome runs fn where the machine's mounts are. A thread that goes there
// cannot come back (it has left the others' file system attributes), so it
// ends with its goroutine.
func (in instance) atHome(fn func() error) error {
	if in.home == 0 {
		return fn()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", in.home))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			return fn()
		}()
	}()
	return <-done
}

// pinnable is a map or a program.
type pinnable interface{ Pin(string) error }

// pinnables lists what is pinned, by name. Maps and programs have distinct
// names; constants are the programs' own.
func pinnables(objs *ebpf.Collection) map[string]pinnable {
	all := map[string]pinnable{}
	for name, m := range objs.Maps {
		if table := bpfobj.TableName(name); table != "" {
			all[table] = m
		}
	}
	for name, p := range objs.Programs {
		all[name] = p
	}
	return all
}

// compiled is the data plane as it is compiled in; the spec is never changed.
var compiled = compilation(bpfobj.LoadLb)

// compilation reads a compilation of the data plane once.
func compilation(load func() (*ebpf.CollectionSpec, error)) func() (*ebpf.CollectionSpec, error) {
	return sync.OnceValues(func() (*ebpf.CollectionSpec, error) {
		spec, err := load()
		if err != nil {
			return nil, fmt.Errorf("read the compiled data plane: %w", err)
		}
		return spec, nil
	})
}

// open opens the pinned objects.
func (in instance) open() (*Director, error) {
	if _, err := os.Stat(in.dir()); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotLoaded
	}
	d := &Director{dir: in.dir()}
	err := d.openObjects()
	if err == nil && !in.ours() {
		err = d.checkShapes()
	}
	if err != nil {
		d.closeObjects()
		return nil, err
	}
	set, err := d.config()
	if err == nil && set.Successor != 0 {
		err = ErrUpgrading
	}
	if err != nil {
		d.closeObjects()
		return nil, err
	}
	return d, nil
}

func (d *Director) openObjects() error {
	var failed error
	d.maps.Each(func(name string, m **ebpf.Map) {
		if failed != nil {
			return
		}
		table := bpfobj.TableName(name)
		var err error
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(d.dir, table), nil); err != nil {
			failed = otherVersion(table, err)
		}
	})
	if failed != nil {
		return failed
	}
	d.maps = tablesOf(d.maps.Tables)
	progs := reflect.ValueOf(&d.progs).Elem()
	for i := range progs.NumField() {
		name := progs.Type().Field(i).Tag.Get("ebpf")
		p, err := ebpf.LoadPinnedProgram(filepath.Join(d.dir, name), nil)
		if errors.Is(err, os.ErrNotExist) && optional(name) {
			continue
		}
		if err != nil {
			return otherVersion(name, err)
		}
		progs.Field(i).Set(reflect.ValueOf(p))
	}
	return nil
}

// signature is a directory among the pins that names the data plane they are
// of: to read the one compiled in, and to compare, takes longer than a command.
func signature(dir string) string { return filepath.Join(dir, objectPrefix+bpfobj.Fingerprint) }

// ours reports whether the pins are those of this very data plane.
func (in instance) ours() bool {
	_, err := os.Stat(signature(in.dir()))
	return err == nil
}

// checkShapes compares the maps with those that are compiled in: another
// version's may do.
func (d *Director) checkShapes() error {
	spec, err := compiled()
	if err != nil {
		return err
	}
	d.maps.Each(func(name string, m **ebpf.Map) {
		want := spec.Maps[name]
		if (*m).Type() != want.Type || (*m).KeySize() != want.KeySize || (*m).ValueSize() != want.ValueSize {
			err = otherVersion(bpfobj.TableName(name), errors.New("its shape is different"))
		}
	})
	return err
}

func otherVersion(name string, err error) error {
	return fmt.Errorf("pinned %s is of another build of imbang (imbang upgrade replaces it and keeps services and connections; imbang detach removes all): %w", name, err)
}

// removePins removes a directory of pins; the kernel frees what nothing else
// holds.
func removePins(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}
