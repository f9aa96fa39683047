// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Parts are loaded when they are wanted, once, for all handles; programs of another
// build are never put on a director's tables; a lock that another holds is no hindrance
// to questions.
func TestParts(t *testing.T) {
	r := newRig(t, Sizes{Services: 8, Servers: 8, Connections: 1 << 10})
	r.addService(tcpService(vip, "rr"), 1)
	pinned := func(name string) bool {
		_, err := os.Stat(filepath.Join(r.dir, name))
		return err == nil
	}
	for _, p := range parts {
		for _, name := range p.programs {
			if pinned(name) {
				t.Errorf("%s is loaded before it is wanted", name)
			}
		}
	}

	var before *Director // opened while there was none
	r.must(r.ns.Do(func() (err error) { before, err = Open(); return err }))
	defer before.Close()
	holder, err := os.OpenFile(r.lock.Name(), os.O_RDWR, 0)
	r.must(err, acquire(holder))
	SetLockTimeout(10 * time.Millisecond)
	r.explain(client1, vip)
	SetLockTimeout(DefaultLockTimeout)
	r.must(holder.Close())
	if pinned("explain") {
		t.Error("explain was pinned without the lock")
	}

	ask := func(d *Director) error {
		return r.ns.Do(func() error {
			_, err := d.Explain(Question{Client: netip.MustParseAddrPort(client1), Virtual: netip.MustParseAddrPort(vip), Protocol: 6})
			return err
		})
	}
	r.must(ask(before))
	if !pinned("explain") {
		t.Fatal("explain is not pinned")
	}
	r.close()
	r.must(r.ns.Do(func() (err error) { r.Director, err = Open(); return err }))
	if r.progs.Explain == nil {
		t.Error("another handle does not open it")
	}
	r.must(ask(r.Director))

	r.must(os.Remove(filepath.Join(r.dir, "explain")), os.Remove(signature(r.dir)))
	r.close()
	r.must(r.ns.Do(func() (err error) { r.Director, err = Open(); return err }))
	if err := ask(r.Director); err == nil || !strings.Contains(err.Error(), "imbang upgrade") {
		t.Errorf("a director of another build: %v", err)
	}
}
