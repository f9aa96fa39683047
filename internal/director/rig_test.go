// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The rig's network: clients behind a router, servers on a link.
const (
	clientDev, serverDev = "ext0", "int0"
	clientDevMAC         = testenv.DirectorMAC
	routerMAC            = "02:00:00:00:01:02"
	serverDevMAC         = testenv.DirectorMAC
	serverMAC            = "02:00:00:00:02:02"

	vip     = "10.20.0.1:80"
	client1 = "10.10.0.2:1234"
)

// small is room enough for most tests, and quick to make.
var small = Sizes{Services: 256, Servers: 1024, Connections: 1 << 15}

// rig is a director in a network namespace of its own, whose routes and
// neighbours lead to clients and servers that need not be there. Packets go
// through the loaded programs one at a time (BPF_PROG_TEST_RUN).
type rig struct {
	testing.TB
	*Director
	ns             *host.Namespace
	client, server int           // indexes of the devices
	onOne          bool          // device for both (onOneDevice)
	gone           bool          // the namespace was removed
	still          *sync.RWMutex // traffic passes while it is not locked
	// What the director is made of and who keeps that afterwards; nil if it is
	// loaded for this rig alone.
	plane *DataPlane
	reuse *Reuse
}

// planes are the data planes of rigs of the size small.
var planes Reuse

// newRig makes a rig that goes away with the test.
func newRig(t testing.TB, sizes Sizes) *rig {
	t.Helper()
	return newRigWith(t, func(r *rig) {
		if sizes == small {
			r.openSmall(false)
		} else {
			r.open(sizes)
		}
	})
}

// newXDPRig makes one of the size small whose programs of XDP are loaded.
func newXDPRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, func(r *rig) { r.openSmall(true) })
}

// openSmall makes the director and opens it; its data plane may be a used one.
func (r *rig) openSmall(xdp bool) {
	r.Helper()
	r.reuse = &planes
	r.must(r.ns.Do(func() (err error) {
		r.Director, r.plane, err = planes.Open(small, xdp)
		return err
	}))
}

// newRigWith makes one whose director is made by load, or else by default sizes.
func newRigWith(t testing.TB, load func(*rig)) *rig {
	t.Helper()
	ns := testenv.Namespace(t, "dir")
	r := &rig{TB: t, still: &sync.RWMutex{}, ns: ns}
	for _, dev := range []struct{ name, mac, peerMAC string }{
		{clientDev, clientDevMAC, routerMAC}, {serverDev, serverDevMAC, serverMAC},
	} {
		r.must(host.Connect(host.End{NS: ns, Name: dev.name, MAC: dev.mac},
			host.End{NS: ns, Name: dev.name + "p", MAC: dev.peerMAC}, host.LinkOptions{}))
	}
	r.must(ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	for _, f := range families {
		router := netip.MustParseAddr(f.router)
		r.must(
			ns.AddAddresses(clientDev, netip.MustParsePrefix(f.clientLink)),
			ns.AddAddresses(serverDev, netip.MustParsePrefix(f.serverLink)),
			ns.AddRoutes(host.Route{Dst: netip.MustParsePrefix(f.clients), Via: router}),
			ns.AddNeighbours(clientDev, routerMAC, router),
		)
		for i := range 32 {
			r.must(ns.AddNeighbours(serverDev, serverMAC, f.serverAddr(i)))
		}
	}
	var err error
	r.client, err = ns.LinkIndex(clientDev)
	r.must(err)
	r.server, err = ns.LinkIndex(serverDev)
	r.must(err)
	load(r)
	if r.Director == nil {
		r.open(Sizes{})
	}
	t.Cleanup(r.remove)
	r.halfOpenLimit(0)
	return r
}

// in is the rig for a subtest.
func (r *rig) in(t testing.TB) *rig {
	sub := *r
	sub.TB = t
	return &sub
}

// serverAddr is the IPv4 address of the i-th server.
func serverAddr(i int) netip.Addr { return ipv4.serverAddr(i) }

func (r *rig) must(errs ...error) {
	r.Helper()
	if err := errors.Join(errs...); err != nil {
		r.Fatal(err)
	}
}

// open opens the director, and makes it if there is none.
func (r *rig) open(sizes Sizes) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) {
		r.Director, err = OpenOrLoad(sizes)
		return err
	}))
}

// close gives up the handle and its lock.
func (r *rig) close() {
	r.Helper()
	if r.Director != nil {
		r.must(r.Director.Close())
		r.Director = nil
	}
}

// reopen makes the director forget what it knows of the maps.
func (r *rig) reopen() {
	r.Helper()
	r.close()
	r.open(Sizes{})
}

func (r *rig) remove() {
	r.close()
	if r.gone {
		return
	}
	plane := r.plane
	r.plane = nil
	err := r.ns.Do(func() error {
		if plane == nil {
			return Detach(true)
		}
		// What a failed test did to the tables is not known.
		if r.Failed() {
			defer plane.Close()
			return Detach(true)
		}
		return r.reuse.Remove(plane)
	})
	if err != nil && !errors.Is(err, ErrNotLoaded) {
		r.Error(err)
	}
}

// instance is that of the rig's network namespace.
func (r *rig) instance() (in instance) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) { in, err = currentInstance(); return err }))
	return in
}

// pins lists what this rig's director, or a load of it that failed, has in
// the state directory.
func (r *rig) pins() (names []string) {
	r.Helper()
	in := r.instance()
	for _, dir := range []string{in.base(), filepath.Join(in.base(), "bpf")} {
		own, err := filepath.Glob(filepath.Join(dir, strconv.FormatUint(in.cookie, 10)+"*"))
		r.must(err)
		names = append(names, own...)
	}
	return names
}

// halfOpenLimit says how many half-open connections are an attack. At first
// none are: tests open many and leave them so.
func (r *rig) halfOpenLimit(n uint32) {
	r.Helper()
	set, err := r.config()
	r.must(err)
	set.HalfOpenLimit = n
	r.must(putConfig(r.maps.Config, set))
}

// timeouts sets timeouts of states that SetTimeouts leaves alone, too.
func (r *rig) timeouts(d time.Duration, states ...bpfobj.LbConnState) {
	r.Helper()
	set, err := r.config()
	r.must(err)
	for _, s := range states {
		set.Timeout[s] = uint64(d)
	}
	r.must(putConfig(r.maps.Config, set))
}

func tcpService(addr, scheduler string) model.Service {
	return service(model.TCP, addr, scheduler)
}

func service(p model.Protocol, addr, scheduler string) model.Service {
	key := model.AddrKey(p, netip.MustParseAddrPort(addr))
	return model.Service{Key: key, Scheduler: scheduler, Netmask: model.FullMask(key.Family)}
}

// realServer is the i-th server, on port 8080.
func realServer(i int, weight int32) model.Server {
	return model.Server{Addr: serverAddr(i), Port: 8080, Weight: weight}
}

// addService adds a service with servers 0, 1, ... of these weights, so that
// the last is the head of the list.
func (r *rig) addService(s model.Service, weights ...int32) {
	r.Helper()
	r.must(r.AddService(s))
	for i, w := range weights {
		r.must(r.AddServer(s.Key, realServer(i, w)))
	}
}

// status lists one service.
func (r *rig) status(k model.ServiceKey) model.ServiceStatus {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	for _, s := range all {
		if s.Key == k {
			return s
		}
	}
	r.Fatalf("no service %s in %v", k, all)
	return model.ServiceStatus{}
}

// counts are a server's connections.
func (r *rig) counts(k model.ServiceKey, addr netip.Addr) (active, inactive uint32) {
	r.Helper()
	for _, s := range r.status(k).Servers {
		if s.Addr == addr {
			return s.Active, s.Inactive
		}
	}
	r.Fatalf("service %s has no server %s", k, addr)
	return 0, 0
}

// entries counts the elements of a hash map.
func (r *rig) entries(m *ebpf.Map) int {
	r.Helper()
	n := 0
	key, err := m.NextKeyBytes(nil)
	for ; key != nil && err == nil; key, err = m.NextKeyBytes(key) {
		n++
	}
	r.must(err)
	return n
}

// atLast waits until ok holds; machines may be slow.
func (r *rig) atLast(limit time.Duration, what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// exists reports whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
