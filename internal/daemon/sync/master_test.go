// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

// start is when virtual time begins.
var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// connection is an established one of a client's port.
func connection(port int) *model.Connection {
	return &model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Client: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), uint16(port)),
		Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080"), Timeout: 15 * time.Minute, Expires: 15 * time.Minute,
	}
}

func connection6(port int) *model.Connection {
	c := connection(port)
	c.Client, c.Virtual, c.Server = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), uint16(port)), at("[2001:db8::100]:80"), at("[2001:db8::2]:80")
	return c
}

func callTemplate(id string) *model.Connection {
	return &model.Connection{
		Protocol: model.UDP, State: "NONE", Client: at("10.1.0.0:0"), Virtual: at("10.9.0.4:5060"), Server: at("10.2.0.2:5060"),
		Template: true, Engine: "sip", EngineData: id, Timeout: time.Minute, Expires: time.Minute,
	}
}

func master(t testing.TB, c Config, s Settings) (*Master, *Counts) {
	t.Helper()
	counts := &Counts{}
	c.Role, c.Interface = RoleMaster, "eth0"
	if err := c.Complete(func(string) (int, error) { return 1500, nil }); err != nil {
		t.Fatal(err)
	}
	m, err := NewMaster(c, s, counts)
	if err != nil {
		t.Fatal(err)
	}
	return m, counts
}

// takeAll reads the messages that wait in all threads.
func takeAll(t testing.TB, m *Master) (list []kernel.Message) {
	t.Helper()
	for i := range m.threads {
		for {
			if waits := m.Waiting(i); waits != (len(m.threads[i].queue) > 0) {
				t.Fatalf("thread %d: waiting %t", i, waits)
			}
			b, ok := m.Next(i)
			if !ok {
				break
			}
			message, err := kernel.Read(b.Bytes)
			if err != nil || len(message.Records) != b.Records {
				t.Fatalf("%d records: %v", b.Records, err)
			}
			list = append(list, message)
		}
	}
	return list
}

func TestMasterSendsFullMessages(t *testing.T) {
	m, counts := master(t, Config{SyncID: 7}, defaultSettings())
	const fit = (1472 - 8) / 36
	for i := range fit {
		m.Add(start, connection(i))
	}
	m.Flush(start.Add(flushAfter - 1))
	if got := takeAll(t, m); got != nil {
		t.Fatalf("%d messages after %d records", len(got), fit)
	}
	m.Add(start, connection(fit))
	got := takeAll(t, m)
	if len(got) != 1 || len(got[0].Records) != fit || got[0].Version != 1 || got[0].SyncID != 7 {
		t.Fatalf("%+v", got)
	}
	for i, r := range got[0].Records {
		if int(r.Client.Port()) != i || r.Timeout != 900 {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if counts.Dropped(DropEntry)+counts.Dropped(DropQueue) != 0 {
		t.Error("records were dropped")
	}
}

func TestMasterSendsAfterTwoSeconds(t *testing.T) {
	m, _ := master(t, Config{}, defaultSettings())
	m.Flush(start)
	m.Add(start, connection(1))
	m.Add(start.Add(time.Second), connection(2))
	m.Flush(start.Add(flushAfter - 1))
	if got := takeAll(t, m); got != nil {
		t.Fatalf("after less than %v: %+v", flushAfter, got)
	}
	m.Flush(start.Add(flushAfter))
	if got := takeAll(t, m); len(got) != 1 || len(got[0].Records) != 2 {
		t.Fatalf("after %v: %+v", flushAfter, got)
	}
	// The next one waits for as long, by its own first record.
	m.Add(start.Add(3*time.Second), connection(3))
	m.Flush(start.Add(4 * time.Second))
	if got := takeAll(t, m); got != nil {
		t.Fatalf("%+v", got)
	}
	m.Flush(start.Add(5 * time.Second))
	if got := takeAll(t, m); len(got) != 1 || len(got[0].Records) != 1 {
		t.Fatalf("%+v", got)
	}
	m.Add(start.Add(6*time.Second), connection(4))
	m.End()
	if got := takeAll(t, m); len(got) != 1 || len(got[0].Records) != 1 {
		t.Fatalf("at the end: %+v", got)
	}
}

// A queue has so many messages; what comes when it is full is counted.
func TestMasterDropsWhatDoesNotFitTheQueue(t *testing.T) {
	s := defaultSettings()
	s.Queue = 2
	m, counts := master(t, Config{MaxLen: 8 + 3*36}, s)
	for i := range 3*5 + 1 {
		m.Add(start, connection(i))
	}
	got := takeAll(t, m)
	if len(got) != 2 || got[1].Records[2].Client.Port() != 5 || counts.Dropped(DropQueue) != 9 {
		t.Errorf("%d messages, %d records dropped; want 2, 9", len(got), counts.Dropped(DropQueue))
	}
	m.End() // there is room again
	if got := takeAll(t, m); len(got) != 1 || counts.Dropped(DropQueue) != 9 {
		t.Errorf("%d messages, %d records dropped", len(got), counts.Dropped(DropQueue))
	}
	s.Queue = 0
	m.Set(s)
	m.Add(start, connection(1))
	m.End()
	if got := takeAll(t, m); got != nil || counts.Dropped(DropQueue) != 10 {
		t.Errorf("%d messages, %d records dropped", len(got), counts.Dropped(DropQueue))
	}
}

// The version changes with the next record; what was begun is sent as it is.
func TestMasterChangesVersion(t *testing.T) {
	s := defaultSettings()
	m, counts := master(t, Config{SyncID: 9}, s)
	m.Add(start, connection(1))
	m.Add(start, connection6(2))
	s.Version = 0
	m.Set(s)
	m.Add(start, connection(3))
	m.Add(start, connection6(4))
	m.Add(start, callTemplate("call"))
	s.Version = 1
	m.Set(s)
	m.Add(start, connection6(5))
	m.End()
	var got []string
	for _, message := range takeAll(t, m) {
		text := fmt.Sprintf("%d:", message.Version)
		for _, r := range message.Records {
			text += fmt.Sprintf(" %d", r.Client.Port())
		}
		got = append(got, text)
	}
	if fmt.Sprint(got) != "[1: 1 2 0: 3 0 1: 5]" {
		t.Errorf("%v", got)
	}
	if counts.Dropped(DropVersion) != 1 {
		t.Errorf("%d entries that version 0 cannot tell, want 1", counts.Dropped(DropVersion))
	}
}

func TestMasterCountsWhatItCannotTell(t *testing.T) {
	m, counts := master(t, Config{}, defaultSettings())
	unknown := connection(1)
	unknown.State = "DREAMING"
	m.Add(start, unknown)
	mixed := connection(2)
	mixed.Server = at("[2001:db8::2]:80")
	m.Add(start, mixed)
	m.End()
	if got := takeAll(t, m); got != nil || counts.Dropped(DropEntry) != 2 {
		t.Errorf("%+v, %d dropped", got, counts.Dropped(DropEntry))
	}
}

// Flows are spread over the threads, and a flow keeps its thread.
func TestMasterThreads(t *testing.T) {
	for _, threads := range []int{1, 2, 8, 64} {
		s := defaultSettings()
		s.Threads = threads
		m, _ := master(t, Config{}, s)
		used := map[int]int{}
		const flows = 64 * 100
		for i := range flows {
			c := connection(i)
			at := m.thread(c)
			c.State, c.Server = "FIN_WAIT", at2
			if m.thread(c) != at {
				t.Fatalf("%d threads: flow %d has two", threads, i)
			}
			used[at]++
		}
		for i := range threads {
			if mean := flows / threads; used[i] < mean/3 || used[i] > mean*3 {
				t.Errorf("%d threads: thread %d has %d of %d flows", threads, i, used[i], flows)
			}
		}
		if len(used) != threads {
			t.Errorf("%d threads are used, want %d", len(used), threads)
		}
	}
	for _, threads := range []int{0, 3, 128} {
		if _, err := NewMaster(Config{MaxLen: 1472}, Settings{Threads: threads, Version: 1, Queue: 1}, &Counts{}); err == nil {
			t.Errorf("%d threads", threads)
		}
	}
}

var at2 = at("10.2.0.3:80")

// An entry takes no memory of its own.
func TestMasterTakesNoMemoryForEntries(t *testing.T) {
	s := defaultSettings()
	s.Threads = 4
	m, _ := master(t, Config{}, s)
	c := connection(1)
	const n = 4000
	perRun := testing.AllocsPerRun(10, func() {
		for i := range n {
			c.Client = netip.AddrPortFrom(c.Client.Addr(), uint16(i))
			m.Add(start, c)
		}
		for i := range 4 {
			for _, ok := m.Next(i); ok; _, ok = m.Next(i) {
			}
		}
	})
	if perRun > n/40*4 {
		t.Errorf("%v allocations for %d entries", perRun, n)
	}
}

func BenchmarkMaster(b *testing.B) {
	s := defaultSettings()
	s.Threads = 2
	m, _ := master(b, Config{}, s)
	c := connection(1)
	for i := range b.N {
		c.Client = netip.AddrPortFrom(c.Client.Addr(), uint16(i))
		m.Add(start, c)
		if i%1000 == 0 {
			for i := range 2 {
				for _, ok := m.Next(i); ok; _, ok = m.Next(i) {
				}
			}
		}
	}
}
