// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/conform"
	"imbang/internal/lab/guest"
)

// lane is a guest, whose network namespaces are a master and two backups, and a namespace
// of bridges to which its devices lead. It plays one scenario at a time.
type lane struct {
	ctx    context.Context
	run    host.Run
	bridge *host.Namespace
	guest  *guest.Guest
	played int
}

// The guest's devices, in order, each with its bridge: the master's three, and one of each
// backup.
var taps = []struct{ name, bridge string }{
	{"m-ext0", "ext"}, {"m-int0", "int"}, {"m-sync0", "sync1"}, {"b1-sync0", "sync1"}, {"b2-sync0", "sync1"},
}

func newLane(ctx context.Context) (*lane, error) {
	run, err := host.NewRun(prefix)
	if err != nil {
		return nil, err
	}
	l := &lane{ctx: ctx, run: run}
	if l.bridge, err = host.NewNamespace(run.Name("br")); err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, name := range []string{"ext", "int", "sync1", "sync2"} {
		fmt.Fprintf(&b, "link add %s type bridge mcast_snooping 0\nlink set %s up\n", name, name)
	}
	var names []string
	for _, tap := range taps {
		fmt.Fprintf(&b, "tuntap add dev %s mode tap\nlink set %s master %s up\n", tap.name, tap.name, tap.bridge)
		names = append(names, tap.name)
	}
	if err := l.ip(b.String()); err != nil {
		l.close()
		return nil, err
	}
	if l.guest, err = boot(ctx, l.bridge, names...); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// ip runs commands of ip(8) in the namespace of bridges.
func (l *lane) ip(commands string) error {
	cmd := exec.Command("ip", "-n", l.bridge.Name(), "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (l *lane) close() {
	if l.guest != nil {
		l.guest.Close()
	}
	_ = l.bridge.Close()
}

// unplug removes a device from the bridges at once. It goes with the namespace of its other
// end, but that takes the kernel a while, in which it is given frames for the next hosts:
// they have the same hardware address.
func (l *lane) unplug(port string) { _ = l.ip("link del " + port + "\n") }

// backup2On puts the second backup of the guest on a bridge for synchronization.
func (l *lane) backup2On(bridge string) error {
	return l.ip("link set b2-sync0 master " + bridge + "\n")
}

// group is a master with its clients and real servers, and its backups.
type group struct {
	*conform.Player
	master           machine
	backups          []machine
	clients, servers *host.Namespace
	started          bool               // all have the table's first state
	change           func(*group) error // if set, what happens to the backups before the master begins
	ends             []func()
}

func (g *group) end() {
	if g.Player != nil {
		g.Player.Close()
		g.Player = nil
	}
	for i := len(g.ends) - 1; i >= 0; i-- {
		g.ends[i]()
	}
	g.ends = nil
}

// hosts makes the clients' and the servers' namespaces. connect links eth0 of one.
func (g *group) hosts(run host.Run, connect func(s conform.Side, hosts *host.Namespace) error) error {
	for _, side := range []struct {
		conform.Side
		ns **host.Namespace
	}{{conform.ClientSide, &g.clients}, {conform.ServerSide, &g.servers}} {
		ns, err := host.NewNamespace(run.Name(side.Role))
		if err != nil {
			return err
		}
		g.ends = append(g.ends, func() { _ = ns.Close() })
		*side.ns = ns
		if err := connect(side.Side, ns); err != nil {
			return err
		}
		if err := side.Equip(ns); err != nil {
			return err
		}
	}
	return nil
}

// director is a master whose table the backups share.
type director struct {
	machine
	*group
}

func (d director) each(do func(machine) error) error {
	errs := make([]error, len(d.backups))
	var wait sync.WaitGroup
	for i, b := range d.backups {
		wait.Go(func() { errs[i] = do(b) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (d director) Ipvsadm(line string) (status int, text string) {
	if !d.started { // the first state is made at once
		return 0, ""
	}
	status, text = d.machine.Ipvsadm(line)
	if err := d.each(func(m machine) error { return m.adapt(line) }); err != nil {
		return -1, err.Error()
	}
	return status, text
}

func (d director) Sysctl(name string, value uint32) error {
	return errors.Join(d.machine.Sysctl(name, value), d.each(func(m machine) error { return m.Sysctl(name, value) }))
}

// kernelGroup is a master in the guest, on the bridges ext, int and sync1.
func (l *lane) kernelGroup() (*group, error) {
	g := &group{}
	m, err := l.kernel("m", "10.30.0.1/24", map[string]int{"ext0": 0, "int0": 1, "sync0": 2})
	if err != nil {
		return nil, err
	}
	g.master, g.ends = m, append(g.ends, m.close)
	run, err := host.NewRun(prefix)
	if err != nil {
		return g, err
	}
	bridges := map[string]string{conform.ClientSide.Dev: "ext", conform.ServerSide.Dev: "int"}
	err = g.hosts(run, func(s conform.Side, hosts *host.Namespace) error {
		port := fmt.Sprintf("%s%d", s.Role, l.played)
		err := host.Connect(host.End{NS: l.bridge, Name: port}, host.End{NS: hosts, Name: "eth0", MAC: conform.HostsMAC}, host.LinkOptions{})
		if err != nil {
			return err
		}
		g.ends = append(g.ends, func() { l.unplug(port) })
		return l.ip("link set " + port + " master " + bridges[s.Dev] + "\n")
	})
	if err == nil {
		g.Player = conform.NewPlayer(director{m, g}, g.clients, g.servers)
	}
	return g, err
}

func (l *lane) kernel(name, address string, nics map[string]int) (*kernel, error) {
	return newKernel(l.ctx, l.guest, fmt.Sprintf("%s%d", name, l.played), address, nics)
}

// addKernel gives a group the backup of a number, 1 or 2.
func (l *lane) addKernel(g *group, n int) error {
	k, err := l.kernel(fmt.Sprintf("b%d-", n), fmt.Sprintf("10.30.0.1%d/24", n), map[string]int{"sync0": 2 + n})
	if err != nil {
		return err
	}
	g.backups, g.ends = append(g.backups, k), append(g.ends, k.close)
	return nil
}

// withLanes makes a pool of lanes, which are closed when the test and its
// parallel subtests are over.
func withLanes(t *testing.T) chan *lane {
	t.Helper()
	pool := make(chan *lane, *lanesAtOnce)
	var all []*lane
	t.Cleanup(func() {
		for _, l := range all {
			l.close()
		}
	})
	for range *lanesAtOnce {
		l, err := newLane(interrupted)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		pool <- l
	}
	return pool
}
