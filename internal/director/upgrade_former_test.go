// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// formerABI is that of the last builds whose connections are in hash tables of the kernel.
const formerABI = 2

// formerSpec is the compiled data plane of such a build.
func formerSpec(t testing.TB) *ebpf.CollectionSpec {
	t.Helper()
	f, err := os.Open("testdata/abi-" + strconv.Itoa(formerABI) + ".o.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	object, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// former makes the rig's director, which has no connections yet, one of the former build, with the same
// services. From then on the rig's packets, and what it enters, are that build's. An edit of the
// services would not be.
func (r *rig) former() {
	r.Helper()
	if n := r.tableEntries(0); n != 0 {
		r.Fatalf("%d entries would be lost", n)
	}
	if r.plane != nil { // two builds have its tables from now on
		r.plane.Close()
		r.plane = nil
	}
	spec := formerSpec(r)
	for name, n := range map[string]uint32{
		"conns4": small.Connections, "conns6": small.Connections,
		"timer_entries4": (3*small.Connections + 1) / 2, "timer_entries6": (3*small.Connections + 1) / 2,
	} {
		spec.Maps[name].MaxEntries = n
	}
	in := r.instance()
	lock, err := in.lock(false)
	r.must(err)
	defer lock.Close()
	u := &upgrade{in: in, spec: spec, object: "former"}
	defer u.close()
	own := func(abi int) string { return filepath.Join(u.nextDir(), abiPrefix+strconv.Itoa(abi)) }
	for _, step := range []func() error{
		func() (err error) { u.cur, err = openPinnedBuild(in.dir()); return err },
		func() error {
			// It lacks enumerations of this build, for which a real upgrade is refused.
			u.result.Plan, _ = planUpgrade(u.cur, spec, Build{formerABI, u.object})
			return u.load()
		},
		func() error {
			config, err := u.copyElements(configTable)
			if err != nil {
				return err
			}
			return config.put()
		},
		func() error { return u.pin(u.nextDir()) },
		func() error { return os.Remove(own(ABI)) },
		func() error { return os.Mkdir(own(formerABI), 0o700) },
		u.startTimers, u.relink, u.exchange, u.removeEarlier,
	} {
		r.must(r.ns.Do(step))
	}
	f, err := openPinnedBuild(in.dir())
	r.must(err)
	defer f.close()
	for name, p := range map[string]**ebpf.Program{"lb_client": &r.progs.LbClient, "lb_server": &r.progs.LbServer, "import_conns": &r.progs.ImportConns} {
		r.must((*p).Close())
		*p = f.progs[name]
		delete(f.progs, name)
	}
	r.must(r.maps.ConnRecords.Close())
	r.maps.ConnRecords = f.maps["conn_records"]
	delete(f.maps, "conn_records")
}

// former likewise, of its rig.
func (l *living) former() {
	l.Helper()
	l.rig.former()
	l.enter()
}

// formerEntries is how many entries the former build has.
func (r *rig) formerEntries() (n int) {
	r.Helper()
	for _, table := range formerTables {
		n += r.entries(r.mapNamed(table))
	}
	return n
}

// An upgrade from a build whose connections are in hash tables of the kernel takes all of them over: of both
// families, with their states, times and packets, templates and those of calls, and what
// belongs to them in other tables.
func TestUpgradeFromFormerTable(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	udp, six := service(model.UDP, vip, "rr"), service(model.TCP, at(ipv6.vip(1), 80), "rr")
	r.addService(udp, 1)
	r.must(r.AddService(six), r.AddServer(six.Key, ipv6.real(0, 8080)), r.AddServer(six.Key, ipv6.real(1, 8080)))
	r.addService(sipService(), 1)
	l := newLiving(r, 0)
	l.addPersistent()
	r.addService(tcpService("10.20.0.9:80", "rr"), 1) // the same server: its replies have entries
	l.former()
	l.converse(20)
	l.persistent(3)
	const half, datagrams = "10.10.0.3:77", "10.10.0.4:78"
	r.syn(half, vip)
	r.fromClient(testenv.UDP(datagrams, vip, "question"))
	r.establish(client1, "10.20.0.9:80")
	var sixth []string
	for i := range 5 {
		sixth = append(sixth, at(ipv6.client, 100+i))
		r.establish(sixth[i], at(ipv6.vip(1), 80))
	}
	r.fromClient(testenv.UDP(sipClient(1), sipVIP, invite("a@h")))
	before := r.formerEntries()
	if want := 20 + 3 + 3 + 1 + 1 + 1 + 5 + 2; before != want {
		t.Fatalf("%d entries, want %d", before, want)
	}
	result, steps, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	if err != nil {
		t.Fatalf("after %q: %v", steps, err)
	}
	for _, m := range result.Plan.Maps {
		if (m.Disposition == Adopted) != connectionTables[m.Name] {
			t.Errorf("%s is %s", m.Name, m.Disposition)
		}
	}
	if result.Adopted != before {
		t.Errorf("%d entries were adopted, want %d", result.Adopted, before)
	}
	r.open(Sizes{})
	if n := r.tableEntries(0); n != before {
		t.Errorf("%d entries, want %d", n, before)
	}
	if n := r.tableEntries(model.IPv6); n != len(sixth) {
		t.Errorf("%d entries of IPv6, want %d", n, len(sixth))
	}
	r.wantClean("upgraded")
	type about struct {
		state       string
		packets     uint16
		least, most time.Duration
	}
	want := map[string]about{
		client1: {"ESTABLISHED", 2, 14 * time.Minute, 15 * time.Minute}, sixth[4]: {"ESTABLISHED", 2, 14 * time.Minute, 15 * time.Minute},
		half: {"SYN_RECV", 1, 1, time.Minute}, datagrams: {"UDP", 1, 4 * time.Minute, 5 * time.Minute},
	}
	for _, c := range r.exported() {
		w, ok := want[c.Client.String()]
		if !ok {
			continue
		}
		delete(want, c.Client.String())
		if c.State != w.state || c.InPackets != w.packets || c.Expires < w.least || c.Expires > w.most {
			t.Errorf("%s: %s after %d packets, ends in %v; want %+v", c.Client, c.State, c.InPackets, c.Expires, w)
		}
	}
	if len(want) != 0 {
		t.Errorf("not there: %v", want)
	}
	if again := r.fromClient(testenv.UDP(sipClient(1)+"1", sipVIP, invite("a@h"))); again.verdict != redirect {
		t.Errorf("a packet of the call: %s", again.verdict)
	}
	calls := 0
	for _, c := range r.exported() {
		if c.Template && c.Engine == "sip" {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d templates of calls, want 1: the call's", calls)
	}
	for _, client := range sixth {
		if got := r.fromClient(testenv.TCP(client, at(ipv6.vip(1), 80), "A")); got.verdict != redirect {
			t.Errorf("a packet of %s: %s", client, got.verdict)
		}
	}
	l.enter()
	l.check("upgraded")
	l.checkPersistent("upgraded")
}

// What a program of the former build could not delete, and left to the wheel, is over: it ends, and its server
// counts it no more.
func TestUpgradeOfEntriesThatWereLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	l := newLiving(r, 0)
	l.former()
	l.converse(3)
	conns := r.mapNamed("conns4")
	was, err := valueLayout(conns, "conn4")
	r.must(err)
	fields, err := formerConnOf(was, false)
	r.must(err)
	for client := range l.servers {
		key := flowOf(testenv.TCP(client, vip, "A"))
		value, err := conns.LookupBytes(key)
		r.must(err)
		value[fields.at["flags"].Offset] |= connLeft
		r.must(conns.Put(key, value))
		delete(l.servers, client)
		break
	}
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	r.atLast(time.Minute, "what was left ends", func() bool { return r.tableEntries(0) == len(l.servers) })
	r.wantClean("upgraded")
	l.enter()
	l.check("upgraded")
	r.close()
	l.counted("upgraded")
	r.open(Sizes{})
}

// The former build has more entries than the new one would have room for: the bound is raised, and
// the settings have the new room.
func TestUpgradeMakesRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	l := newLiving(r, 0)
	l.former()
	l.converse(700)
	next := r.instance().dir() + nextSuffix
	few := func(step string) {
		if step != "adopt the connections" {
			return
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(next, "pages"), nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer m.Close()
		p, err := pagesOf(m)
		p.Bound = 3
		if err := errors.Join(err, m.Put(uint32(0), p)); err != nil {
			t.Error(err)
		}
	}
	result, _, err := r.upgradeToNth(ours(t), bpfobj.Fingerprint, "", 1, few)
	r.must(err)
	if result.Adopted != len(l.servers) {
		t.Errorf("%d connections were adopted, want %d", result.Adopted, len(l.servers))
	}
	r.open(Sizes{})
	set, err := r.config()
	r.must(err)
	capacity, err := r.capacity()
	r.must(err)
	if room := capacity.Connections; room < 700 || set.Room != [2]uint32{room, room / 2} {
		t.Errorf("there is room for %d connections, the settings say %v", room, set.Room)
	}
	l.enter()
	l.check("upgraded")
	r.close()
	l.counted("upgraded")
	r.open(Sizes{})
}

// The first builds' values have no time that backups know, and one byte of packets. A value without a
// field that connections need is refused.
func TestFormerValues(t *testing.T) {
	fields := func(packets uint32, paths ...string) (l layout.Layout) {
		sizes := map[string]uint32{"expires": 8, "port": 2, "told_end": 2, "state": 1, "flags": 1, "template": 1, "forward": 1, "in_packets": packets}
		l.Fields = []layout.Field{{Path: "flow.src", Size: 4}, {Path: "flow.protocol", Offset: uint32(unsafe.Offsetof(bpfobj.LbFlow4{}.Protocol)), Size: 1}}
		l.Size = uint32(unsafe.Sizeof(bpfobj.LbFlow4{}))
		for _, path := range append(formerFields[2:len(formerFields):len(formerFields)], paths...) {
			size := uint32(4)
			if other, ok := sizes[path]; ok {
				size = other
			}
			at := (l.Size + size - 1) / size * size
			l.Fields, l.Size = append(l.Fields, layout.Field{Path: path, Offset: at, Size: size}), at+size
		}
		return l
	}
	for _, c := range []struct {
		layout  layout.Layout
		packets uint16
		end     uint16
		told    uint8
	}{{fields(1), 7, 0, 0}, {fields(2, "told_end", "number"), 0x107, 0x203, 5}} {
		f, err := formerConnOf(c.layout, false)
		if err != nil {
			t.Fatal(err)
		}
		value := make([]byte, c.layout.Size)
		for path, n := range map[string]uint64{
			"flow.src": 0x0100000a, "expires": 1 << 40, "server": 3, "in_packets": 0x107, "(fwmark|controlled)": 9, "(netmask|timeout)": 11,
			"told_end": 0x203, "number": 5<<formerToldShift | 1,
		} {
			if field, ok := f.at[path]; ok {
				var all [8]byte
				binary.NativeEndian.PutUint64(all[:], n)
				copy(value[field.Offset:][:field.Size], all[:])
			}
		}
		r := f.record(value)
		if r.Expires != 1<<40 || r.Server != 3 || r.InPackets != c.packets || r.Fwmark != 9 || r.Netmask != 11 || r.ToldEnd != c.end || r.Told != c.told || r.Flow.Src.Word[3] != 0x0100000a {
			t.Errorf("%+v", r)
		}
	}
	for _, path := range formerFields {
		l := fields(2)
		l.Fields = slices.DeleteFunc(l.Fields, func(f layout.Field) bool { return f.Path == path })
		if _, err := formerConnOf(l, false); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("without %s: %v", path, err)
		}
	}
	if _, err := formerConnOf(fields(2), true); err == nil {
		t.Error("values of IPv4 pass as those of IPv6")
	}
}

// Pages are made ahead of the connections that are entered: the kernel allocates no block by itself.
func TestUpgradeMakesPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.timeouts(time.Hour, bpfobj.LbConnStateTCP_SYN_RECV)
	l := newLiving(r, 0)
	l.former()
	const connections = 12000 // more than the first pages have room for
	for i := range connections {
		r.syn(nthClient(i), vip)
	}
	result, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	if result.Adopted != connections {
		t.Errorf("%d connections were adopted, want %d", result.Adopted, connections)
	}
	r.open(Sizes{})
	tables, err := r.tables()
	r.must(err)
	if tables.Spare != 0 || tables.Blocks <= pagesAhead*pageBlocks {
		t.Errorf("%+v", tables)
	}
	r.wantClean("upgraded")
}
