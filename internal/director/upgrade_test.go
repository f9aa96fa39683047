// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// killedBefore ends an upgrade before one of its steps, as SIGKILL would.
type killedBefore string

func (k killedBefore) Error() string { return fmt.Sprintf("killed before %q", string(k)) }

// upgradeTo makes the rig's director one of another build. It is killed before a
// step of a name, if there is one, and tells the steps that it went through.
func (r *rig) upgradeTo(spec *ebpf.CollectionSpec, object, before string) (result UpgradeResult, steps []string, err error) {
	r.Helper()
	return r.upgradeToNth(spec, object, before, 1)
}

// upgradeToNth is likewise; it is killed before the n-th time (from 1) of the step. Before each step
// it calls functions.
func (r *rig) upgradeToNth(spec *ebpf.CollectionSpec, object, before string, nth int, at ...func(step string)) (result UpgradeResult, steps []string, err error) {
	r.Helper()
	r.close()
	if r.plane != nil { // two builds have its tables from now on
		r.plane.Close()
		r.plane = nil
	}
	in := r.instance()
	lock, err := in.lock(false)
	r.must(err)
	defer lock.Close()
	u := &upgrade{in: in, spec: spec.Copy(), object: object}
	defer u.close()
	u.at = func(step string) {
		for _, f := range at {
			f(step)
		}
		if step == before {
			if nth--; nth == 0 {
				panic(killedBefore(step))
			}
		}
		steps = append(steps, step)
	}
	r.must(r.ns.Do(func() error {
		defer func() {
			if k, ok := recover().(killedBefore); ok {
				err = k
			}
		}()
		result, err = u.run(false)
		return nil
	}))
	return result, steps, err
}

// ours is the data plane as it is compiled in.
func ours(t testing.TB) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// living is a rig with established connections, whose packets come by the
// program that was attached before an upgrade, until that is through.
type living struct {
	*rig
	entry   *ebpf.Program // of clients, as it was
	servers map[string]netip.AddrPort
	kept    map[string]netip.AddrPort // of clients of a persistent service
}

func newLiving(r *rig, clients int) *living {
	r.Helper()
	l := &living{rig: r, servers: map[string]netip.AddrPort{}, kept: map[string]netip.AddrPort{}}
	r.addService(tcpService(vip, "rr"), 1, 1, 1)
	l.converse(clients)
	l.enter()
	r.Cleanup(func() { l.entry.Close() })
	return l
}

// converse opens connections of so many clients.
func (l *living) converse(clients int) {
	l.Helper()
	for i := range clients {
		client := fmt.Sprintf("10.10.0.2:%d", 2000+i)
		l.servers[client] = l.establish(client, vip)
	}
}

// enter takes the program of clients that is attached now. The rig is open.
func (l *living) enter() {
	l.Helper()
	if l.entry != nil {
		l.entry.Close()
	}
	var err error
	l.entry, err = l.progs.LbClient.Clone()
	l.must(err)
}

// check sends a packet of each connection, by the program that was attached
// first: each goes to its server, and the counts are what they were.
func (l *living) check(what string) {
	l.Helper()
	wrong := 0
	for client, server := range l.servers {
		v, err := l.packet(client)
		l.must(err)
		got, err := v.server()
		if err != nil || got != server {
			if wrong++; wrong < 3 {
				l.Errorf("%s: a packet of %s went to %v (%v), want %v", what, client, got, err, server)
			}
		}
	}
	if wrong > 0 {
		l.Fatalf("%s: %d of %d connections are lost", what, wrong, len(l.servers))
	}
}

// packet sends one of a connection.
func (l *living) packet(client string) (v result, err error) {
	context := skBuff{Ifindex: uint32(l.client), IngressIfindex: uint32(l.client)}
	err = l.ns.Do(func() (err error) {
		v, err = run(l.entry, context, testenv.TCP(client, vip, "A").Frame(), 0)
		return err
	})
	return v, err
}

// keep sends a packet of each connection, whatever becomes of it.
func (l *living) keep() {
	for client := range l.servers {
		_, _ = l.packet(client)
	}
}

// counted compares what the servers count with the connections that there are.
func (l *living) counted(what string) {
	l.Helper()
	l.open(Sizes{})
	defer l.close()
	l.enter()
	active := uint32(0)
	for _, s := range l.status(tcpService(vip, "rr").Key).Servers {
		active += s.Active
	}
	if int(active) != len(l.servers) {
		l.Errorf("%s: the servers count %d active connections, want %d", what, active, len(l.servers))
	}
	if got := l.tableEntries(0); got != len(l.servers) {
		l.Errorf("%s: %d connections in the table, want %d", what, got, len(l.servers))
	}
}

// An upgrade to other programs keeps every connection and its time, by
// both hooks; a packet that is still given to the earlier program is the later
// one's.
func TestUpgrade(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		r.must(r.attach(clientDev, serverDev, hook))
		l := newLiving(r, 20)
		result, steps, err := r.upgradeTo(ours(t), "another", "")
		if err != nil {
			t.Fatalf("after %q: %v", steps, err)
		}
		if !result.Upgraded || result.Resumed || result.Plan.Count(Adopted) != 0 || result.Adopted != 0 {
			t.Errorf("result %+v", result)
		}
		for _, m := range result.Plan.Maps {
			if connectionTables[m.Name] && m.Disposition != Kept {
				t.Errorf("%s is %s: %q", m.Name, m.Disposition, m.Differences)
			}
		}
		l.check("upgraded")
		l.counted("upgraded")
		if got := r.pins(); len(got) != 2 {
			t.Errorf("left: %q, want the pins and the lock file", got)
		}
		r.open(Sizes{})
		r.wantAttached("client "+clientDev+" "+string(hook), "server "+serverDev+" "+string(hook))
		// Connections expire by the later build's timers.
		r.timeouts(time.Second, bpfobj.LbConnStateTCP_ESTABLISHED)
		r.close()
		l.check("with a short timeout")
		r.open(Sizes{})
		r.atLast(time.Minute, "connections expire", func() bool { return r.tableEntries(0) == 0 })
		// And to the compiled build, which commands are of.
		if _, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, ""); err != nil {
			t.Fatal(err)
		}
		if result, steps, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, ""); err != nil || result.Upgraded || len(steps) > 0 {
			t.Errorf("once more: %+v, %q, %v", result, steps, err)
		}
		r.open(Sizes{})
	})
}

// An upgrade that is killed before any of its steps loses no connection, and is
// finished when it is run again; meanwhile other commands refuse to work.
func TestUpgradeKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	l := newLiving(r, 10)
	_, steps, err := r.upgradeTo(ours(t), "build 0", "")
	r.must(err)
	if len(steps) < 10 {
		t.Fatalf("only %d steps: %q", len(steps), steps)
	}
	for i, step := range steps {
		object := fmt.Sprintf("build %d", i+1)
		_, _, err := r.upgradeTo(ours(t), object, step)
		var k killedBefore
		if !errors.As(err, &k) {
			t.Fatalf("before %q: %v", step, err)
		}
		l.check("killed before " + step)
		handed := slices.Index(steps, step) > slices.Index(steps, "hand over")
		exchanged := slices.Index(steps, step) > slices.Index(steps, "exchange the pins")
		err = r.ns.Do(func() error {
			d, err := Open()
			if err == nil {
				d.Close()
			}
			return err
		})
		if refuses := errors.Is(err, ErrUpgrading); refuses != (handed && !exchanged) {
			t.Errorf("killed before %q: opening says %v", step, err)
		}
		if _, _, err = r.upgradeTo(ours(t), object, ""); err != nil {
			t.Fatalf("killed before %q and run again: %v", step, err)
		}
		l.check("finished after " + step)
		l.counted("finished after " + step)
		if got := r.pins(); len(got) != 2 {
			t.Errorf("killed before %q and run again, left: %q", step, got)
		}
	}
	r.open(Sizes{})
}

// An upgrade that is not possible changes nothing.
func TestUpgradeRefused(t *testing.T) {
	r := newRig(t, small)
	l := newLiving(r, 5)
	_, steps, err := r.upgradeTo(edited(t, "load", swapped("active", "inactive")), "another", "")
	if err == nil || !strings.Contains(err.Error(), "map loads: field active moved") || len(steps) > 0 {
		t.Errorf("after %q: %v", steps, err)
	}
	// A director of the time before upgrades has no ABI.
	r.open(Sizes{})
	r.must(os.Remove(filepath.Join(r.dir, abiPrefix+strconv.Itoa(ABI))))
	if _, _, err = r.upgradeTo(ours(t), "another", ""); err == nil || !strings.Contains(err.Error(), "before ABI 1") {
		t.Errorf("without an ABI: %v", err)
	}
	l.check("refused")
	l.counted("refused")
	r.open(Sizes{})
}
