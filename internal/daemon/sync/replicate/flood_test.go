// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"imbang/internal/daemon/sync/own"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// mostMore is by how much a flood may delay good entries, at the 99th percentile.
const mostMore = 50 * time.Millisecond

// Where the fields of a datagram are that an attacker changes (package own, Layout).
const (
	versionAt, kindAt, groupAt, numberAt = 3, 4, 6, 16
	tagBytes                             = 16
)

// attacker is a host that sees what two directors send each other, and sends what it likes,
// but has no key.
type attacker struct {
	*testing.T
	ns    *host.Namespace
	conns map[netip.Addr]*ipv4.PacketConn // by target
	rng   *rand.Rand
	sent  atomic.Uint64

	mu     sync.Mutex
	latest [][]byte // of all kinds, a ring
	at     int
	old    [][]byte // of former sessions
}

// attack connects an attacker to nodes, and has it see what comes to the last one.
func attack(t *testing.T, nodes ...*node) *attacker {
	t.Helper()
	a := &attacker{T: t, ns: testenv.Namespace(t, "attacker"), conns: map[netip.Addr]*ipv4.PacketConn{}, rng: rand.New(rand.NewPCG(99, 1))}
	for i, n := range nodes {
		link(n, a.ns, i)
		n.must(a.ns.Do(func() error {
			conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.addr, own.Port)))
			if err != nil {
				return err
			}
			t.Cleanup(func() { conn.Close() })
			a.conns[n.addr] = ipv4.NewPacketConn(conn)
			return nil
		}))
	}
	a.tap(nodes[len(nodes)-1])
	return a
}

// link connects a node to another namespace, whose address on the i-th link is 10.8.i.1.
func link(n *node, other *host.Namespace, i int) {
	n.Helper()
	device := fmt.Sprintf("eth%d", i)
	n.must(host.Connect(host.End{NS: other, Name: device}, host.End{NS: n.ns, Name: "other"}, host.LinkOptions{}))
	here, there := netip.AddrFrom4([4]byte{10, 8, byte(i), 1}), netip.AddrFrom4([4]byte{10, 8, byte(i), 2})
	n.must(other.AddAddresses(device, netip.PrefixFrom(here, 24)))
	n.must(n.ns.AddAddresses("other", netip.PrefixFrom(there, 24)))
	n.must(other.AddRoutes(host.Route{Dst: netip.PrefixFrom(n.addr, 32), Via: there}))
}

// tap notes the datagrams of a node's device, in both directions.
func (a *attacker) tap(n *node) {
	a.Helper()
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	index, err := n.ns.LinkIndex("eth0")
	n.must(err)
	var fd int
	n.must(n.ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
		return err
	}))
	n.must(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	n.must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 1<<14)
		for !ended.Load() {
			n, err := unix.Read(fd, packet)
			if err == nil {
				a.see(packet[:n])
			}
		}
	}()
	a.Cleanup(func() {
		ended.Store(true)
		<-done
		unix.Close(fd)
	})
}

// see notes a datagram of the protocol.
func (a *attacker) see(packet []byte) {
	const ip, udp, most = 20, 8, 4096
	if len(packet) < ip+udp || packet[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(packet[ip+2:]) != own.Port {
		return
	}
	b := slices.Clone(packet[ip+udp:])
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.latest) < most {
		a.latest = append(a.latest, b)
	} else {
		a.latest[a.at%most] = b
	}
	a.at++
}

// awaitSight waits until something of this session was seen.
func (a *attacker) awaitSight() {
	a.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		a.mu.Lock()
		n := len(a.latest)
		a.mu.Unlock()
		if n > 0 {
			return
		}
	}
	a.Fatal("the attacker sees nothing")
}

// sessionEnds says that what was seen is of a former session.
func (a *attacker) sessionEnds() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.old, a.latest, a.at = a.latest, nil, 0
}

// one makes a datagram of the attack.
func (a *attacker) one() []byte {
	a.mu.Lock()
	x := slices.Clone(a.latest[a.rng.IntN(len(a.latest))])
	last := slices.Clone(a.latest[(a.at+len(a.latest)-1)%len(a.latest)])
	old := a.old[a.rng.IntN(len(a.old))]
	a.mu.Unlock()
	switch a.rng.IntN(8) {
	case 0: // replayed
	case 1: // replayed, of another session
		x = old
	case 2: // truncated
		x = x[:a.rng.IntN(len(x))]
	case 3: // forged: of this session, with a number to come, and another key
		number := last[numberAt : numberAt+8]
		binary.BigEndian.PutUint64(number, binary.BigEndian.Uint64(number)+uint64(1+a.rng.IntN(100)))
		h := hmac.New(sha256.New, []byte("a key of another group"))
		h.Write(last[:len(last)-tagBytes])
		x = append(last[:len(last)-tagBytes], h.Sum(nil)[:tagBytes]...)
	case 4: // changed on the way
		x[a.rng.IntN(len(x))] ^= 1 << a.rng.IntN(8)
	case 5: // of another group
		x[groupAt] ^= 0x40
	case 6: // of another version or kind
		x[[]int{versionAt, kindAt}[a.rng.IntN(2)]] ^= 0x40
	case 7: // foreign
		for i := range x {
			x[i] = byte(a.rng.Uint32())
		}
	}
	return x
}

// flood sends so many datagrams per second to a target until stop is called, which returns how
// many it sent. Rate 0: as many as it can.
func (a *attacker) flood(target netip.Addr, rate int) (stop func() uint64) {
	const batch = 64
	conn := a.conns[target]
	before := a.sent.Load()
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		began, sent := time.Now(), 0
		messages := make([]ipv4.Message, batch)
		for !ended.Load() {
			if rate > 0 && float64(sent) > float64(rate)*time.Since(began).Seconds() {
				time.Sleep(500 * time.Microsecond)
				continue
			}
			for i := range messages {
				messages[i].Buffers = [][]byte{a.one()}
			}
			n, err := conn.WriteBatch(messages, 0)
			if err != nil {
				n = 1 // that of a former one
			}
			sent += n
			a.sent.Add(uint64(n))
		}
	}()
	stop = sync.OnceValue(func() uint64 {
		ended.Store(true)
		<-done
		return a.sent.Load() - before
	})
	a.Cleanup(func() { stop() })
	return stop
}

// flooded is a master that tells of openings, its backup, and an attacker.
type flooded struct {
	a, b           *node
	master, backup *Replica
	endBackup      func()
	attacker       *attacker
	delays         delays
	load           *load
}

func newFlooded(t *testing.T, connections uint32) *flooded {
	t.Helper()
	f := &flooded{}
	f.a, f.b = twoNodes(t, connections)
	f.load = newLoad(f.a, services()[0])
	f.load.room = 1 << 20
	f.attacker = attack(t, f.a, f.b)
	_, end := f.a.role(Master, f.b.addr)
	f.join(t)
	f.load.open(1000)
	wantEqual(f.a, f.b, "before the flood")
	end()
	f.attacker.awaitSight()
	f.attacker.sessionEnds()
	f.master, _ = f.a.roleWith(Master, f.delays.master, f.b.addr)
	awaitState(t, f.backup, "the backup follows the second session", synced)
	f.openings(t, 200*time.Millisecond, 0) // to be recorded
	f.attacker.awaitSight()
	return f
}

// join starts the backup, and returns how long it takes to have the table.
func (f *flooded) join(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	f.backup, f.endBackup = f.b.roleWith(Backup, f.delays.backup, f.a.addr)
	awaitState(t, f.backup, "the backup joined", synced)
	return time.Since(began)
}

// openings opens connections for a while, and until the attacker has sent so many datagrams. It
// returns how long the openings took to the backup. Then all but some are ended.
func (f *flooded) openings(t *testing.T, d time.Duration, datagrams uint64) []time.Duration {
	t.Helper()
	began, before := time.Now(), f.attacker.sent.Load()
	for time.Since(began) < d || f.attacker.sent.Load()-before < datagrams && time.Since(began) < patience {
		f.load.open(1 + f.load.rng.IntN(4))
		time.Sleep(time.Duration(f.load.rng.Int64N(int64(10 * time.Millisecond))))
	}
	list := f.delays.take(t, patience)
	f.load.end(len(f.load.flows) - 1000)
	return list
}

// counts are those of backup and master.
func (f *flooded) counts() [2]own.Counts {
	return [2]own.Counts{f.backup.State().Counts, f.master.State().Counts}
}

// unaffected fails if an attack had an effect.
func (f *flooded) unaffected(t *testing.T) {
	t.Helper()
	wantEqual(f.a, f.b, "after the flood")
	if diff := cmp.Diff(f.a.servers(), f.b.servers()); diff != "" {
		t.Errorf("servers (-master +backup):\n%s", diff)
	}
	if n := len(f.b.table()); n != len(f.load.live) {
		t.Errorf("%d entries, want %d", n, len(f.load.live))
	}
	master, backup := f.master.State(), f.backup.State()
	if len(master.Alarms)+len(backup.Alarms) != 0 || len(master.Receivers) != 1 || backup.Master.Session != master.Session ||
		backup.Master.Sender.Addr() != f.a.addr || backup.Counts.Bulks != 2 {
		t.Errorf("master: %+v\nbackup: %+v", master, backup)
	}
	for _, r := range []own.Reason{own.ReasonMalformed, own.ReasonUndefined, own.ReasonUnsendable} {
		if n := master.Counts.Refused[r] + backup.Counts.Refused[r]; n != 0 {
			t.Errorf("something forged was read: %d refused as %s", n, r)
		}
	}
}

// counted fails if a reason was not counted, or fewer than half of the datagrams that a role could
// read. The others found no room in its socket's buffer, as the reader waited for a processor.
func counted(t *testing.T, before own.Counts, counts func() own.Counts, sent, full uint64) {
	t.Helper()
	var list bytes.Buffer
	after, readable := counts(), sent-min(sent, full)
	for began := time.Now(); refused(after)-refused(before) < readable/2 && time.Since(began) < patience; after = counts() {
		time.Sleep(20 * time.Millisecond) // the rest is in the buffer
	}
	for _, r := range own.Reasons() {
		n := after.Refused[r] - before.Refused[r]
		if fmt.Fprintf(&list, " %s %d", r, n); n == 0 && slices.Contains(floodReasons, r) {
			t.Errorf("%s: not counted", r)
		}
	}
	t.Logf("%d sent, %d without room, refused:%s", sent, full, list.Bytes())
	if n := refused(after) - refused(before); n < readable/2 || n == 0 {
		t.Errorf("%d of %d were counted, and %d found no room", n, sent, full)
	}
}

// full is how many datagrams found no room in the sockets of a node's role, by the kernel's count.
func (n *node) full() (all uint64) {
	n.Helper()
	n.must(n.ns.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/udp")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", own.Port)) {
				drops, bad := strconv.ParseUint(f[len(f)-1], 10, 64)
				all, err = all+drops, errors.Join(err, bad)
			}
		}
		return err
	}))
	return all
}

// floodReasons are what an attacker's datagrams are refused for, by a backup and a master.
var floodReasons = []own.Reason{
	own.ReasonLength, own.ReasonForeign, own.ReasonVersion, own.ReasonKind, own.ReasonGroup, own.ReasonSession, own.ReasonReplayed,
	own.ReasonForged,
}

// A flood of foreign, truncated, forged and replayed datagrams neither changes the table nor
// delays good entries by more than 50 ms. The attacker uses the same processors.
func TestFloodDelaysNothing(t *testing.T) {
	f := newFlooded(t, few)
	const datagrams, rounds = 10_000, 2
	var sent [2]uint64
	before := f.counts()
	full := [2]uint64{f.b.full(), f.a.full()}
	// Other processes may delay entries in one attempt; a flood that does would in each.
	for attempt := 1; ; attempt++ {
		var clean, under []time.Duration
		stalls := testenv.WatchStalls(t)
		for range rounds {
			for i, target := range []*node{f.b, f.a} {
				clean = append(clean, f.openings(t, 400*time.Millisecond, 0)...)
				stop := f.attacker.flood(target.addr, 30_000)
				under = append(under, f.openings(t, 400*time.Millisecond, datagrams/rounds)...)
				sent[i] += stop()
			}
		}
		t.Logf("without: %s", summary(clean))
		t.Logf("with:    %s", summary(under))
		more := quantile(under, 0.99) - quantile(clean, 0.99)
		if more <= mostMore+stalls.Longest() {
			break
		}
		if attempt == 3 {
			t.Errorf("the flood delays entries by %v, beside stalls of %v", more, stalls.Longest())
			break
		}
	}
	for i, n := range []*node{f.b, f.a} {
		if sent[i] < datagrams {
			t.Errorf("%d datagrams are not a flood", sent[i])
		}
		counted(t, before[i], func() own.Counts { return f.counts()[i] }, sent[i], n.full()-full[i])
	}
	f.unaffected(t)
}
