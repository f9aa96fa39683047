// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// timedTable notes when an entry is synchronized.
type timedTable struct {
	*fakeTable
	mu sync.Mutex
	at map[netip.AddrPort]time.Time // by client
}

func (t *timedTable) Synchronize(entries []model.Connection) ([]error, error) {
	errs, err := t.fakeTable.Synchronize(entries)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range entries {
		t.at[c.Client] = now
	}
	return errs, err
}

// messageOf is the message of one connection.
func messageOf(t *testing.T, client netip.AddrPort) []byte {
	t.Helper()
	w, err := kernel.NewWriter(kernel.Version1, 3, 1400)
	if err != nil {
		t.Fatal(err)
	}
	ok, err := w.Add(&kernel.Record{
		Protocol: uint8(model.TCP), State: 1, Timeout: 900, Client: client, Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080"),
	})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return w.Take()
}

// badMessage makes one that a backup must not use. Without a key it uses each that is well
// formed and of its synchronization ID.
func badMessage(rng *rand.Rand, good []byte) []byte {
	b := slices.Clone(good)
	switch rng.IntN(6) {
	case 0: // foreign
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)+1))
	case 1: // truncated
		b = b[:rng.IntN(len(b))]
	case 2: // of another group of directors
		b[1]++
	case 3: // longer than a backup reads
		b = append(b, make([]byte, 1500)...)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	case 4: // a record that is longer than the message
		binary.BigEndian.PutUint16(b[10:], 0x0fff)
	case 5: // a record of another version
		b[10] |= 0xf0
	}
	return b
}

// multicaster is a socket that sends to the group.
func multicaster(t *testing.T, ns *host.Namespace) (conn *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		l, err := findLink("eth0")
		if err == nil {
			conn, err = sendSocket(l, at("224.0.0.81:8848"), 1, 1<<20)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A flood of foreign and malformed messages changes nothing and delays good ones by 50 ms at
// most, at the 99th percentile. Sender and receiver use the same processors.
func TestFloodOfMalformedMessages(t *testing.T) {
	a, b := twoHosts(t)
	table := &timedTable{fakeTable: newFakeTable(), at: map[netip.AddrPort]time.Time{}}
	table.settings = []director.Setting{{Name: "sync_sock_size", Value: 1 << 21}}
	backup := run(t, b, Config{Role: RoleBackup, Interface: "eth0", SyncID: 3}, Options{Table: table})
	good, bad := multicaster(t, a), multicaster(t, a)

	var on, ended atomic.Bool
	var flooded atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		const rate, batch = 30_000, 32
		rng := rand.New(rand.NewPCG(3, 1))
		sample := messageOf(t, at("10.99.0.1:99"))
		conn := ipv4.NewPacketConn(bad)
		messages := make([]ipv4.Message, batch)
		for pace := time.NewTicker(time.Second * batch / rate); !ended.Load(); <-pace.C {
			if !on.Load() {
				continue
			}
			for i := range messages {
				messages[i].Buffers = [][]byte{badMessage(rng, sample)}
			}
			if n, err := conn.WriteBatch(messages, 0); err == nil {
				flooded.Add(uint64(n))
			}
		}
	}()
	defer func() {
		ended.Store(true)
		<-done
	}()

	const rounds, fewest, flood = 3, 200, 20_000 // messages of each kind, and of the flood
	next, lost := 0, []netip.AddrPort(nil)
	// A round lasts longer where other work delays it, until it has its share of the messages.
	delays := func(share uint64) (list []time.Duration) {
		sent, before, began := map[netip.AddrPort]time.Time{}, flooded.Load(), time.Now()
		// Some may be lost.
		short := func() bool { return len(sent) <= fewest || flooded.Load()-before < share }
		for ; time.Since(began) < 500*time.Millisecond || short() && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(next >> 8), byte(next)}), 40000)
			next++
			sent[client] = time.Now()
			if _, err := good.Write(messageOf(t, client)); err != nil {
				t.Fatal(err)
			}
		}
		// A message waits in the socket's buffer while the backup waits for a processor.
		missing := func() (n int) {
			table.mu.Lock()
			defer table.mu.Unlock()
			for client := range sent {
				if _, ok := table.at[client]; !ok {
					n++
				}
			}
			return n
		}
		time.Sleep(200 * time.Millisecond)
		for began := time.Now(); uint64(len(lost)+missing()) > backup.counts.Dropped(DropSocket) && time.Since(began) < 10*time.Second; {
			time.Sleep(20 * time.Millisecond)
		}
		table.mu.Lock()
		defer table.mu.Unlock()
		for client, at := range sent {
			if applied, ok := table.at[client]; ok {
				list = append(list, applied.Sub(at))
			} else {
				lost = append(lost, client)
			}
		}
		return list
	}
	quantile := func(list []time.Duration, share float64) time.Duration {
		slices.Sort(list)
		return list[min(int(share*float64(len(list))), len(list)-1)]
	}
	// Other processes may delay messages in one attempt; a flood that does would in each.
	for attempt := 1; ; attempt++ {
		var clean, under []time.Duration
		stalls := testenv.WatchStalls(t)
		for range rounds {
			clean = append(clean, delays(0)...)
			on.Store(true)
			under = append(under, delays(flood/rounds+1)...)
			on.Store(false)
		}
		for name, list := range map[string][]time.Duration{"without": clean, "with": under} {
			if len(list) < fewest {
				t.Fatalf("%s the flood: %d messages", name, len(list))
			}
			t.Logf("%s: %d messages: median %v, p99 %v, longest %v", name, len(list), quantile(list, 0.5), quantile(list, 0.99), quantile(list, 1))
		}
		more := quantile(under, 0.99) - quantile(clean, 0.99)
		if more <= 50*time.Millisecond+stalls.Longest() {
			break
		}
		if attempt == 3 {
			t.Errorf("the flood delays messages by %v, beside stalls of %v", more, stalls.Longest())
			break
		}
	}
	backup.end(t)
	// What was late for its round is not lost.
	table.mu.Lock()
	lost = slices.DeleteFunc(lost, func(c netip.AddrPort) bool { _, ok := table.at[c]; return ok })
	table.mu.Unlock()
	for _, r := range []Reason{DropShort, DropSize, DropLong, DropSyncID, DropMalformed} {
		t.Logf("%s: %d", r, backup.counts.Dropped(r))
		if backup.counts.Dropped(r) == 0 {
			t.Errorf("%s is not counted", r)
		}
	}
	t.Logf("%d of the flood; %d good ones lost, %d of all found no room in the socket", flooded.Load(), len(lost), backup.counts.Dropped(DropSocket))
	if flooded.Load() < flood {
		t.Errorf("%d messages are not a flood", flooded.Load())
	}
	// The protocol repairs no loss, but counts it.
	if uint64(len(lost)) > backup.counts.Dropped(DropSocket) {
		t.Errorf("%d messages were lost, %d of them are counted", len(lost), backup.counts.Dropped(DropSocket))
	}
	for _, c := range table.all() {
		if c.Client.Addr().As4()[1] != 1 {
			t.Errorf("the flood entered %+v", c)
		}
	}
	if n := len(table.all()); n != next-len(lost) {
		t.Errorf("%d entries, want %d", n, next-len(lost))
	}
}
