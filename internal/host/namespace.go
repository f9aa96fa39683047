// SPDX-License-Identifier: Apache-2.0

// Package host owns what this program builds in the network of the machine it
// runs on: network namespaces, links, addresses, routes, neighbours and
// per-namespace sysctls.
//
// It is the only importer of netlink. It knows nothing about balancing: it
// imports neither BPF nor any other package of this module.
package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where `ip netns` looks for names, so that a user can enter a
// namespace of ours with `ip netns exec`.
const netnsDir = "/run/netns"

// Namespace is a named network namespace that this process made.
type Namespace struct {
	name   string
	file   *os.File // the bind mount; keeps the namespace alive while open
	handle *netlink.Handle

	mu     sync.Mutex
	closed bool
}

// NewNamespace makes a network namespace as `ip netns add NAME` does, with the
// loopback up.
//
// It sets tcp_timestamps to 2, timestamps without a random offset per pair of
// addresses. With offsets, a server that meets the same client address and
// port twice, once through an address translation and once directly, sees the
// client's clock jump back, takes the SYN for an old duplicate (PAWS) and
// drops it; measurements then collapse to a few connections per second.
func NewNamespace(name string) (*Namespace, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return nil, fmt.Errorf("network namespace %q: not a valid name", name)
	}
	if err := shareNetnsDir(); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, needRoot(err))
	}
	path := filepath.Join(netnsDir, name)
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	f.Close()
	if err := bindNewNamespace(path); err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("network namespace %s: %w", name, needRoot(err))
	}
	n := &Namespace{name: name}
	if err := n.open(); err != nil {
		n.Close()
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return n, nil
}

// open takes hold of a namespace just bound and gives it its first settings.
func (n *Namespace) open() error {
	if err := n.hold(); err != nil {
		return err
	}
	if err := n.Up("lo"); err != nil {
		return err
	}
	return n.Sysctl("net.ipv4.tcp_timestamps", "2")
}

// hold opens the namespace's file and a netlink socket inside.
func (n *Namespace) hold() (err error) {
	if n.file, err = os.Open(n.Path()); err != nil {
		return err
	}
	n.handle, err = netlink.NewHandleAt(netns.NsHandle(n.file.Fd()), unix.NETLINK_ROUTE)
	return err
}

// shareNetnsDir makes /run/netns a shared mount, as ip(8) does: without it a
// mount namespace copied later (a systemd service, say) would keep ours alive
// after we removed it.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if err != unix.EINVAL { // EINVAL: not a mount point yet
		return err
	}
	if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return share()
}

// bindNewNamespace makes a namespace on this thread, binds it to path, and
// brings the thread back.
func bindNewNamespace(path string) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	})
}

// onThread runs fn on a locked OS thread and puts the thread back into the
// network namespace it came from.
func onThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		// A thread lost in another namespace must not run other
		// goroutines: their sockets would be made there.
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic("cannot return to the network namespace we came from: " + err.Error())
		}
		home.Close()
		runtime.UnlockOSThread()
	}()
	return fn()
}

// Name is the name given to NewNamespace.
func (n *Namespace) Name() string { return n.name }

// Path is the file that stands for the namespace, good for setns(2).
func (n *Namespace) Path() string { return filepath.Join(netnsDir, n.name) }

// Do runs fn on a locked OS thread inside the namespace: sockets made by fn
// belong to it for their whole life. Goroutines that fn starts do not run
// inside. fn runs on the caller's goroutine, so t.Fatal works in it.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		// The lock is released before fn: fn may call Do again.
		if err := n.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// Start starts a process inside the namespace: a child is born into the
// network namespace of the thread that forks it.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// enter moves the calling thread into the namespace.
func (n *Namespace) enter() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("network namespace %s: already removed", n.name)
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: enter: %w", n.name, needRoot(err))
	}
	return nil
}

// Sysctl writes a setting such as net.ipv4.ip_forward inside the namespace. In
// a key that holds a device name with a dot, write slashes between the parts.
func (n *Namespace) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", sysctlPath(key))
	// /proc/sys/net shows the namespace of the thread that opens it.
	err := n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("network namespace %s: sysctl %s=%s: %w", n.name, key, value, err)
	}
	return nil
}

func sysctlPath(key string) string {
	if strings.Contains(key, "/") {
		return key
	}
	return strings.ReplaceAll(key, ".", "/")
}

// Close kills what still runs inside and removes the namespace with its links.
// It is idempotent. A process left inside would keep the namespace alive, with
// no name to find it by.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.handle != nil {
		n.handle.Close()
	}
	if n.file != nil {
		n.file.Close()
	}
	return removeNamespace(n.name)
}

// removeNamespace kills the processes of a namespace and unbinds its name.
func removeNamespace(name string) error {
	path := filepath.Join(netnsDir, name)
	killInside(path)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT { // EINVAL: never bound
		return fmt.Errorf("network namespace %s: %w", name, needRoot(err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	return nil
}

// needRoot adds the remedy to a refusal for want of privilege.
func needRoot(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (run as root: this needs CAP_NET_ADMIN and CAP_SYS_ADMIN)", err)
	}
	return err
}
