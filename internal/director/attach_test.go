// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// everyHook runs a test with each hook that this kernel has; clsact is in all.
func everyHook(t *testing.T, test func(r *rig, hook Hook)) {
	for _, hook := range []Hook{HookTCX, HookClsact} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, small)
			if hook == HookTCX && !r.hasTCX() {
				t.Log("not checked: this kernel has no tcx")
				return
			}
			test(r, hook)
		})
	}
}

func (r *rig) hasTCX() bool {
	r.Helper()
	err := r.attach(clientDev, clientDev, HookTCX)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false
	}
	r.must(err)
	r.detach(false)
	return true
}

func (r *rig) attach(client, server string, hook Hook) error {
	return r.ns.Do(func() error { return r.Attach(client, server, hook) })
}

// detach detaches and opens the director again if it stays.
func (r *rig) detach(purge bool) {
	r.Helper()
	r.close()
	r.must(r.ns.Do(func() error { return Detach(purge) }))
	if !purge {
		r.open(Sizes{})
	}
}

// wantAttached compares "role device hook" of the attachments. Each device has
// also the program of the egress.
func (r *rig) wantAttached(want ...string) {
	r.Helper()
	var all []Attachment
	r.must(r.ns.Do(func() (err error) { all, err = r.Attachments(); return err }))
	var got []string
	for _, a := range all {
		got = append(got, a.Role+" "+a.Device+" "+string(a.Hook))
	}
	for _, w := range want {
		_, where, _ := strings.Cut(w, " ")
		want = append(want, "local "+where)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("attachments (-want +got):\n%s", diff)
	}
}

// classifiers are the names of those in the rig's namespace.
func (r *rig) classifiers() (names []string) {
	r.Helper()
	r.must(r.ns.Do(func() error {
		all, err := host.Classifiers("")
		for _, c := range all {
			names = append(names, c.Name)
		}
		return err
	}))
	return names
}

// Attach, detach and attach again; the table stays meanwhile. Removing the
// director leaves nothing of it.
func TestAttachments(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		r.addService(tcpService(vip, "rr"), 1)
		for _, devices := range [][2]string{{"nothere", serverDev}, {clientDev, "nothere"}, {"lo", serverDev}} {
			if err := r.attach(devices[0], devices[1], hook); err == nil || !strings.Contains(err.Error(), "device") {
				r.Errorf("attached to %v: %v", devices, err)
			}
			r.wantAttached()
		}
		both := []string{"client " + clientDev + " " + string(hook), "server " + serverDev + " " + string(hook)}
		r.must(r.attach(clientDev, serverDev, hook))
		r.wantAttached(both...)
		for _, again := range Hooks {
			if err := r.attach(clientDev, serverDev, again); err == nil || !strings.Contains(err.Error(), "attached to "+clientDev+" already") {
				r.Errorf("attached twice, by %s: %v", again, err)
			}
		}
		r.reopen()
		r.wantAttached(both...)
		r.detach(false)
		r.wantAttached()
		r.must(r.attach(serverDev, serverDev, hook))
		r.wantAttached("client " + serverDev + " " + string(hook))
		if len(r.listing()) != 1 {
			r.Error("the table is gone")
		}
		r.detach(true)
		if got := append(r.pins(), r.classifiers()...); len(got) != 0 {
			r.Errorf("left: %v", got)
		}
		r.remove() // nothing is there
		r.open(small)
		if len(r.listing()) != 0 {
			r.Error("a new director has an old table")
		}
	})
}

// auto is tcx where there is one.
func TestAutoHook(t *testing.T) {
	r := newRig(t, small)
	want := HookClsact
	if r.hasTCX() {
		want = HookTCX
	}
	r.must(r.attach(clientDev, clientDev, HookAuto))
	r.wantAttached("client " + clientDev + " " + string(want))
}

// What comes in by an attached device is forwarded while no handle is open,
// and what is not the director's goes on to the stack.
func TestAttachedForwards(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		r.addService(tcpService(vip, "rr"), 1)
		r.must(r.attach(clientDev, serverDev, hook))
		r.close()
		client, server := r.wire(clientDev+"p"), r.wire(serverDev+"p")
		syn, back := testenv.TCP(client1, vip, "S"), testenv.TCP(server0, client1, "SA")
		client.send(syn.MACs(routerMAC, clientDevMAC))
		server.want(syn.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
		server.send(back.MACs(serverMAC, serverDevMAC))
		client.want(back.From(vip).TTL(63).MACs(clientDevMAC, routerMAC))

		var own net.PacketConn
		r.must(r.ns.Do(func() (err error) { own, err = net.ListenPacket("udp4", "10.9.0.1:9"); return err }))
		defer own.Close()
		client.send(testenv.UDP("10.10.0.2:9", "10.9.0.1:9", "for the director's own stack").MACs(routerMAC, clientDevMAC))
		r.must(own.SetReadDeadline(time.Now().Add(30 * time.Second)))
		if _, _, err := own.ReadFrom(make([]byte, 100)); err != nil {
			r.Errorf("a packet that is not the director's: %v", err)
		}
		r.open(Sizes{})
		r.detach(false)
		client.send(testenv.TCP("10.10.0.3:1", vip, "S").MACs(routerMAC, clientDevMAC))
		server.wantNothing(syn.From("10.10.0.3:1").To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
	})
}

// wire is a device as the host at its end has it: frames go in and come out.
type wire struct {
	*rig
	fd int
}

func (r *rig) wire(dev string) wire {
	r.Helper()
	w := wire{r, -1}
	r.must(r.ns.Do(func() (err error) {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		const every = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every); err != nil {
			return err
		}
		r.Cleanup(func() { unix.Close(w.fd) })
		return errors.Join(
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: i.Index}),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	}))
	return w
}

func (w wire) send(p testenv.Packet) {
	w.Helper()
	w.must(unix.Send(w.fd, p.Frame(), 0))
}

// comes waits for a frame among whatever else the kernel sends.
func (w wire) comes(frame []byte, limit time.Duration) bool {
	b := make([]byte, 2048)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if n, err := unix.Read(w.fd, b); err == nil && bytes.Equal(b[:n], frame) {
			return true
		}
	}
	return false
}

func (w wire) want(p testenv.Packet) {
	w.Helper()
	if !w.comes(p.Frame(), 30*time.Second) {
		w.Fatal("the packet does not come out")
	}
}

func (w wire) wantNothing(p testenv.Packet) {
	w.Helper()
	if w.comes(p.Frame(), 300*time.Millisecond) {
		w.Fatal("the packet was forwarded")
	}
}

// A device takes its attachment along when it goes; there is room for
// another, and the table stays. Removing the director of another namespace
// does not touch this one.
func TestDeviceGoes(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		other := newRig(r.TB, small)
		r.addService(tcpService(vip, "rr"), 1)
		r.must(r.attach(clientDev, serverDev, hook), r.ns.DeleteLink(serverDev))
		r.wantAttached("client " + clientDev + " " + string(hook))
		r.wantGone("server")
		r.must(r.ns.DeleteLink(clientDev))
		r.wantAttached()
		r.wantGone()
		dir := r.dir
		r.close()
		other.remove()
		if !exists(dir) {
			r.Fatal("the director of a living namespace was removed by another's end")
		}
		r.open(Sizes{})
		if len(r.listing()) != 1 {
			r.Error("the table is gone")
		}
		// Another device of the same name is not attached.
		r.must(host.Connect(host.End{NS: r.ns, Name: clientDev}, host.End{NS: r.ns, Name: clientDev + "p"}, host.LinkOptions{}))
		r.wantAttached()
		r.must(r.attach(clientDev, clientDev, hook))
		r.wantAttached("client " + clientDev + " " + string(hook))
		r.wantGone()
		r.must(r.ns.DeleteLink(clientDev))
		r.detach(true)
	})
}

// wantGone checks which sides' devices are said to be gone.
func (r *rig) wantGone(want ...string) {
	r.Helper()
	r.must(r.ns.Do(func() error {
		st, err := r.Status()
		if err == nil && !slices.Equal(st.Gone, want) {
			r.Errorf("devices gone: %v, want %v", st.Gone, want)
		}
		return err
	}))
}

// The director of a namespace that went away is removed when another ends.
func TestNamespaceGoes(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		other := newRig(r.TB, small)
		r.must(r.attach(clientDev, serverDev, hook))
		pins := r.pins()
		r.close()
		r.gone = true
		r.must(r.ns.Close())
		r.atLast(time.Minute, "the director goes after its namespace", func() bool {
			other.remove()
			left := slices.ContainsFunc(pins, exists)
			if left {
				other.open(small)
			}
			return !left
		})
	})
}

// Where attaching to the second device fails, the first is as it was.
func TestAttachIsWholeOrNot(t *testing.T) {
	r, other := newRig(t, small), newRig(t, small)
	r.must(r.ns.Do(func() error {
		dev, err := net.InterfaceByName(serverDev)
		if err != nil {
			return err
		}
		return host.AddClassifier("another's", dev.Index, host.Ingress, other.progs.LbServer.FD())
	}))
	err := r.attach(clientDev, serverDev, HookClsact)
	if err == nil || !strings.Contains(err.Error(), "device "+serverDev+": attach: another filter has priority") {
		t.Errorf("attached where another filter is: %v", err)
	}
	r.wantAttached()
	if got := r.classifiers(); !slices.Equal(got, []string{"another's"}) {
		t.Errorf("classifiers: %v, want another's alone", got)
	}
}

// Attaching that was killed half way left some of the programs: detach removes
// what there is, and then there is room for all.
func TestDetachAfterKilledAttach(t *testing.T) {
	everyHook(t, func(r *rig, hook Hook) {
		some := []struct {
			at   place
			prog func() *ebpf.Program
		}{
			{place{side: "client"}, func() *ebpf.Program { return r.progs.LbClient }},
			{place{side: "client", out: true}, func() *ebpf.Program { return r.progs.LbLocal }},
			{place{side: "server"}, func() *ebpf.Program { return r.progs.LbServer }},
		}
		for n := range some {
			for _, s := range some[:n+1] {
				r.must(r.ns.Do(func() error {
					dev, err := net.InterfaceByName(map[string]string{"client": clientDev, "server": serverDev}[s.at.side])
					if err != nil {
						return err
					}
					return r.attachOne(hook, s.at, dev, s.prog())
				}))
			}
			if err := r.attach(clientDev, serverDev, hook); err == nil || !strings.Contains(err.Error(), "attached to "+clientDev+" already") {
				r.Errorf("attached beside %d programs: %v", n+1, err)
			}
			r.detach(false)
			r.wantAttached()
			if got := r.classifiers(); len(got) != 0 {
				r.Errorf("left: %v", got)
			}
		}
		r.must(r.attach(clientDev, serverDev, hook))
		r.wantAttached("client "+clientDev+" "+string(hook), "server "+serverDev+" "+string(hook))
	})
}

// A device with another's qdisc of kind ingress has no way out to attach to.
// All but what the director serves itself works.
func TestAttachWithoutEgress(t *testing.T) {
	r := newRig(t, small)
	tc := exec.Command("tc", "qdisc", "add", "dev", clientDev, "ingress")
	r.must(r.ns.Start(tc), tc.Wait())
	r.must(r.attach(clientDev, clientDev, HookClsact))
	var all []Attachment
	r.must(r.ns.Do(func() (err error) { all, err = r.Attachments(); return err }))
	if len(all) != 1 || all[0].Role != "client" {
		t.Errorf("attachments: %v, want the client's alone", all)
	}
	r.detach(false)
	r.wantAttached()
}

// A director whose pins were removed by hand leaves programs on its devices:
// the next one is not taken for it, and removes them.
func TestPinsRemovedByHand(t *testing.T) {
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookClsact))
	r.close()
	r.must(r.ns.Do(func() error {
		in, err := currentInstance()
		if err != nil {
			return err
		}
		return removePins(in.dir())
	}))
	r.open(small)
	r.wantAttached()
	r.must(r.attach(serverDev, serverDev, HookClsact))
	r.wantAttached("client " + serverDev + " clsact")
	if got := r.classifiers(); len(got) != 2 {
		t.Errorf("classifiers: %v, want two", got)
	}
}

// Attachments are listed while another command takes them away.
func TestAttachmentsWhileDetaching(t *testing.T) {
	r := newRig(t, small)
	done := make(chan struct{})
	listed := make(chan error, 1)
	go func() {
		listed <- r.ns.Do(func() error {
			d, err := Open()
			if err != nil {
				return err
			}
			defer d.Close()
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if _, err := d.Attachments(); err != nil {
					return err
				}
			}
		})
	}()
	for range 15 {
		r.must(r.attach(clientDev, serverDev, HookAuto))
		r.detach(false)
	}
	close(done)
	r.must(<-listed)
}
