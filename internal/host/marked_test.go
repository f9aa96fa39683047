// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// withDevice makes a namespace with a device that has a peer in another one.
func withDevice(t *testing.T) (ns, other *Namespace) {
	t.Helper()
	run := needNamespaces(t)
	ns, other = newNamespace(t, run.Name("host")), newNamespace(t, run.Name("nb"))
	must(t, ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"), other.Sysctl("net.ipv6.conf.default.accept_dad", "0"),
		Connect(End{NS: ns, Name: "eth0"}, End{NS: other, Name: "eth0"}, LinkOptions{}))
	return ns, other
}

func device(t *testing.T, ns *Namespace, name string) (d *Device) {
	t.Helper()
	must(t, ns.Do(func() error {
		all, err := Devices()
		d = all[name]
		return err
	}))
	if d == nil {
		t.Fatalf("no device %s", name)
	}
	return d
}

func prefixes(list ...string) (all []netip.Prefix) {
	for _, one := range list {
		all = append(all, netip.MustParsePrefix(one))
	}
	return all
}

// global are a device's addresses without its link-local one.
func global(d *Device) (all []netip.Prefix) {
	for _, a := range d.Addresses {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			all = append(all, a.Prefix)
		}
	}
	return all
}

// Only addresses that were added with the mark are removed, and those that Linux removes with
// them come back.
func TestMarkedAddresses(t *testing.T) {
	for _, promote := range []string{"0", "1"} {
		ns, _ := withDevice(t)
		must(t, ns.Sysctl("net.ipv4.conf.eth0.promote_secondaries", promote), ns.Sysctl("net.ipv4.conf.all.promote_secondaries", "0"))
		static := prefixes("10.20.0.5/24", "fd00:20::5/64")
		must(t, ns.AddAddresses("eth0", static...))
		d := device(t, ns, "eth0")
		if !d.Up || len(d.MAC) != 6 {
			t.Errorf("%+v", d)
		}
		// 10.20.0.5 is there already, 10.30.0.1 becomes the first one of its network.
		moving := prefixes("10.20.0.5/24", "10.20.0.1/24", "10.30.0.1/24", "10.40.0.1/32", "fd00:20::5/64", "fd00:20::1/64")
		add := func() { must(t, ns.Do(func() error { return AddMarked(d, moving) })) }
		add()
		add() // again
		others := prefixes("10.30.0.7/24", "10.30.0.8/24")
		must(t, ns.AddAddresses("eth0", others[0]))
		must(t, ns.Do(func() error { return AddMarked(d, others[1:]) })) // marked, and to stay
		d = device(t, ns, "eth0")
		for _, a := range d.Addresses {
			is := slices.Contains(moving, a.Prefix) && !slices.Contains(static, a.Prefix) || a.Prefix == others[1]
			if is != (a.Protocol == Mark) || a.Unusable && !a.Prefix.Addr().IsLinkLocalUnicast() {
				t.Errorf("promote %s: %+v", promote, a)
			}
		}
		if want := len(static) + 4 + len(others); len(global(d)) != want {
			t.Errorf("promote %s: %v, want %d", promote, global(d), want)
		}
		out, err := exec.Command("ip", "-n", ns.Name(), "address", "show", "dev", "eth0").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "inet 10.20.0.1/24 brd 10.20.0.255") {
			t.Errorf("%v: %s", err, out)
		}
		var again []netip.Prefix
		must(t, ns.Do(func() (err error) { again, err = new(Links).RemoveMarked(d, moving); return err }))
		d = device(t, ns, "eth0")
		left, want := global(d), append(slices.Clone(static), others...)
		for _, p := range want {
			if !slices.Contains(left, p) {
				t.Errorf("promote %s: %v was removed: %v", promote, p, left)
			}
		}
		if len(left) != len(want) {
			t.Errorf("promote %s: %v, want %v", promote, left, want)
		}
		for _, a := range d.Addresses {
			if a.Prefix == others[1] && a.Protocol != Mark {
				t.Errorf("promote %s: %v has lost its mark", promote, a.Prefix)
			}
		}
		if (len(again) == 2) != (promote == "0") {
			t.Errorf("promote %s: added again: %v", promote, again)
		}
		must(t, ns.Do(func() (err error) { again, err = new(Links).RemoveMarked(d, moving); return err })) // again
		if len(again) != 0 {
			t.Errorf("added again: %v", again)
		}
	}
}

// An address that cannot be added is an error that names it, and others are added.
func TestMarkedErrors(t *testing.T) {
	ns, _ := withDevice(t)
	must(t, ns.Sysctl("net.ipv6.conf.eth0.disable_ipv6", "1"))
	d := device(t, ns, "eth0")
	err := ns.Do(func() error { return AddMarked(d, prefixes("fd00:20::1/64", "10.20.0.1/24")) })
	if err == nil || !strings.HasPrefix(err.Error(), "device eth0: add address fd00:20::1/64: ") {
		t.Errorf("%v", err)
	}
	if got := global(device(t, ns, "eth0")); !slices.Equal(got, prefixes("10.20.0.1/24")) {
		t.Errorf("%v", got)
	}
}

// The watch notices devices and addresses that change, and nothing else.
func TestDeviceWatch(t *testing.T) {
	ns, other := withDevice(t)
	var w *DeviceWatch
	must(t, ns.Do(func() (err error) { w, err = NewDeviceWatch(); return err }))
	defer w.Close()
	settle := func() bool {
		time.Sleep(50 * time.Millisecond)
		return w.Drain()
	}
	// Its carrier and its link-local address come later.
	for d := device(t, ns, "eth0"); !d.Up || len(d.Addresses) == 0 || d.Addresses[0].Unusable; d = device(t, ns, "eth0") {
		time.Sleep(time.Millisecond)
	}
	for settle() {
	}
	if settle() {
		t.Error("a change without a cause")
	}
	must(t, ns.AddAddresses("eth0", netip.MustParsePrefix("10.20.0.1/24")))
	if !settle() {
		t.Error("an address that was added was not noticed")
	}
	must(t, other.Down("eth0"))
	// The kernel reports a carrier at most once a second (linkwatch).
	for deadline := time.Now().Add(time.Minute); device(t, ns, "eth0").Up; {
		if time.Now().After(deadline) {
			t.Fatal("a device without carrier is up")
		}
		settle()
	}
	settle()
	must(t, ns.DeleteLink("eth0"))
	if !settle() {
		t.Error("the removal of the device was not noticed")
	}
}

// A neighbour follows announcements of addresses that the device does not have (yet).
func TestAnnouncer(t *testing.T) {
	ns, other := withDevice(t)
	addresses := []netip.Addr{netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("fd00:20::1")}
	must(t, ns.AddAddresses("eth0", prefixes("10.20.0.8/24", "fd00:20::8/64")...), other.AddAddresses("eth0", prefixes("10.20.0.9/24", "fd00:20::9/64")...))
	for _, a := range addresses {
		if out, err := exec.Command("ip", "-n", other.Name(), "neigh", "replace", a.String(), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "reachable").CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	d := device(t, ns, "eth0")
	must(t, ns.Do(func() error {
		announcer, err := NewAnnouncer()
		if err != nil {
			return err
		}
		defer announcer.Close()
		all := d.Announcements(addresses)
		if len(all) != len(addresses) {
			return fmt.Errorf("%d announcements", len(all))
		}
		for i := range all {
			if err := announcer.Send(&all[i]); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, a := range addresses {
		want := fmt.Sprintf("%s lladdr %s", a, d.MAC)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			out, err := exec.Command("ip", "-n", other.Name(), "neigh", "show", "dev", "eth0").CombinedOutput()
			must(t, err)
			if strings.Contains(string(out), want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("want %s: %s", want, out)
			}
		}
	}
	if all := device(t, ns, "lo").Announcements(addresses); len(all) != 0 {
		t.Errorf("lo: %v", all)
	}
}

// A neighbour that could not be resolved is, as soon as it answers a solicitation, whatever
// the kernel waits for.
func TestSolicitation(t *testing.T) {
	ns, other := withDevice(t)
	must(t, ns.AddAddresses("eth0", prefixes("10.20.0.8/24", "fd00:20::8/64")...))
	for _, family := range []string{"ipv4", "ipv6"} { // the kernel's next solicitation is behind the end of the test
		must(t, ns.Sysctl("net."+family+".neigh.eth0.retrans_time_ms", "3600000"))
	}
	d := device(t, ns, "eth0")
	for _, c := range []struct{ from, to, prefix string }{{"10.20.0.8", "10.20.0.9", "10.20.0.9/24"}, {"fd00:20::8", "fd00:20::9", "fd00:20::9/64"}} {
		from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
		unresolved := func() (is bool) {
			must(t, ns.Do(func() error { is = new(Links).Unresolved(d, to); return nil }))
			return is
		}
		if unresolved() {
			t.Errorf("%s: unknown", to)
		}
		must(t, ns.Do(func() error {
			conn, err := net.Dial("udp", net.JoinHostPort(c.to, "9"))
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("x"))
			return err
		}))
		if !unresolved() {
			t.Errorf("%s: not there", to)
		}
		time.Sleep(20 * time.Millisecond) // behind the kernel's first solicitation
		must(t, other.AddAddresses("eth0", netip.MustParsePrefix(c.prefix)))
		solicit := func() {
			must(t, ns.Do(func() error {
				announcer, err := NewAnnouncer()
				if err != nil {
					return err
				}
				defer announcer.Close()
				n, has := d.Solicitation(from, to)
				if !has {
					t.Errorf("%+v", d)
				}
				return announcer.Send(&n)
			}))
		}
		for begin := time.Now(); unresolved(); time.Sleep(20 * time.Millisecond) { // an IPv6 address is not usable at once
			solicit()
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: still unresolved", to)
			}
		}
	}
}

// Packets to an address that was waited for are delivered: Linux enters the route of an IPv6
// address in a worker.
func TestMarkedIsLocal(t *testing.T) {
	ns, _ := withDevice(t)
	d := device(t, ns, "eth0")
	local := 0
	for n := range 100 {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x20, 14: 1, 15: byte(n)}), 128)
		must(t, ns.Do(func() error {
			if err := AddMarked(d, []netip.Prefix{p}); err != nil {
				return err
			}
			began := time.Now()
			new(Links).AwaitLocal([]netip.Addr{netip.MustParseAddr("10.20.0.1"), p.Addr()}) // of IPv4 none is waited for
			took := time.Since(began)
			is, err := new(Links).isLocal(p.Addr())
			if err != nil {
				return err
			}
			if is {
				local++
			} else if took < localPatience { // the kernel's worker may need more on a busy machine
				return fmt.Errorf("%s is not local after %v", p, took)
			}
			return nil
		}))
	}
	if local == 0 {
		t.Error("no address is local")
	}
	must(t, ns.Do(func() error {
		if is, err := new(Links).isLocal(netip.MustParseAddr("fd00:99::1")); err != nil || is {
			return fmt.Errorf("an address of another host is local: %w", err)
		}
		return nil
	}))
}
