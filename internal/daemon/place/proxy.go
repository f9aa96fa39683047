// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Proxy has a directory for each network namespace that has or had a process of imbang proxy,
// which does not depend on a daemon or director.
const Proxy = "/run/imbang/proxy"

// ProxyDir is that of the calling thread's network namespace.
func ProxyDir() (string, error) { return of(Proxy) }

// ErrProxyRunning says that there is such a process already.
var ErrProxyRunning = errors.New("imbang proxy runs already in this network namespace (systemctl status imbang-proxy)")

// TakeProxy makes a directory and locks it, until the file is closed or the program ends. An
// earlier program of this process may have left it locked, which goes on.
func TakeProxy(dir string) (*os.File, error) {
	if f := InheritVRRP(dir); f != nil {
		return f, nil
	}
	return retake(dir, ErrProxyRunning)
}

// ProxyMaster is the socket of the process that imbang proxy supervises. It may run while
// imbang proxy does not.
func ProxyMaster(dir string) string { return filepath.Join(dir, "master.sock") }

// SweepProxy removes the directories that nobody has any more: neither imbang proxy, nor HAProxy, nor a
// daemon, which copies certificates into one and has configurations checked there before there is a proxy.
func SweepProxy() { sweepProxy(Proxy, Base) }

func sweepProxy(base, daemons string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "[0-9]*"))
	for _, dir := range dirs {
		sweepProxyOf(dir, filepath.Join(daemons, filepath.Base(dir)))
	}
}

// sweepProxyOf has both locks, so that neither a supervisor nor a daemon is started meanwhile.
func sweepProxyOf(dir, daemon string) {
	f, err := take(dir, ErrProxyRunning)
	if err != nil {
		return
	}
	defer f.Close()
	if c, err := net.Dial("unix", ProxyMaster(dir)); err == nil {
		c.Close()
		return
	}
	d, err := take(daemon, ErrRunning)
	if err != nil {
		return
	}
	defer d.Close()
	_ = os.RemoveAll(dir)
	// take may have made the daemon's, which then has nothing else.
	if entries, err := os.ReadDir(daemon); err == nil && len(entries) == 1 {
		_ = os.Remove(d.Name())
		_ = os.Remove(daemon)
	}
}
