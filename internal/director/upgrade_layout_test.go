// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// addPersistent adds a persistent service.
func (l *living) addPersistent() {
	l.Helper()
	l.addService(persistent(tcpService("10.20.0.2:80", "rr")), 1, 1, 1)
}

// persistent opens connections of clients of that service, and says how many templates there are.
func (l *living) persistent(clients int) (templates int) {
	l.Helper()
	for i := range clients {
		client := fmt.Sprintf("10.10.1.%d:3000", 1+i)
		l.kept[client] = l.establish(client, "10.20.0.2:80")
	}
	return clients
}

// checkPersistent opens another connection of each client of the persistent
// service: it goes to the client's server.
func (l *living) checkPersistent(what string) {
	l.Helper()
	for client, server := range l.kept {
		end := netip.MustParseAddrPort(client)
		again := netip.AddrPortFrom(end.Addr(), end.Port()+1).String()
		var v result
		context := skBuff{Ifindex: uint32(l.client), IngressIfindex: uint32(l.client)}
		l.must(l.ns.Do(func() (err error) {
			v, err = run(l.entry, context, testenv.TCP(again, "10.20.0.2:80", "S").Frame(), 0)
			return err
		}))
		if got, err := v.server(); err != nil || got != server {
			l.Errorf("%s: a new connection of %s goes to %v (%v), want %v", what, client, got, err, server)
		}
	}
}

// A director whose tables have another layout, also one whose upgrade was killed, is not
// to be removed: what is said leads to an upgrade, which works.
func TestOtherLayoutAdvisesUpgrade(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	l := newLiving(r, 0)
	l.former()
	l.converse(3)
	advised := func(when string) {
		err := r.ns.Do(func() error {
			d, err := Open()
			if err == nil {
				d.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "imbang upgrade replaces it and keeps services and connections") {
			t.Errorf("%s: %v", when, err)
		}
	}
	r.close()
	advised("before")
	_, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "adopt the connections")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	advised("killed")
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	l.enter()
	l.check("upgraded")
}

// An upgrade from a build whose connections are in other tables takes them over, though it is killed
// before any of its steps.
func TestUpgradeOfLayout(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"", "hand over", "wait for packets under way", "carry what was counted", "start the timers", "adopt the connections", "adopt a batch", "replace the programs on devices"} {
		t.Run("killed before "+step, func(t *testing.T) {
			r := newRig(t, small)
			r.must(r.attach(clientDev, serverDev, HookAuto))
			l := newLiving(r, 0)
			l.addPersistent()
			l.former()
			l.converse(20)
			templates := l.persistent(3)
			result, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, step)
			var k killedBefore
			if errors.As(err, &k) != (step != "") {
				t.Fatal(err)
			}
			if step != "" {
				if result, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, ""); err != nil {
					t.Fatal(err)
				}
			}
			if want := len(l.servers) + len(l.kept) + templates; step == "" && result.Adopted != want {
				t.Errorf("%d connections and templates were adopted, want %d", result.Adopted, want)
			}
			r.open(Sizes{})
			l.enter()
			if got, want := r.tableEntries(0), len(l.servers)+len(l.kept)+templates; got != want {
				t.Errorf("%d entries, want %d", got, want)
			}
			r.close()
			l.check("upgraded")
			l.checkPersistent("upgraded")
			r.open(Sizes{})
			r.timeouts(time.Second, bpfobj.LbConnStateTCP_ESTABLISHED)
			r.close()
			l.check("with a short timeout")
			r.open(Sizes{})
			if step == "" {
				r.atLast(time.Minute, "connections expire", func() bool {
					active, inactive := uint32(0), uint32(0)
					for _, s := range r.status(tcpService(vip, "rr").Key).Servers {
						active, inactive = active+s.Active, inactive+s.Inactive
					}
					return active == 0 && inactive == 0
				})
			}
		})
	}
}
