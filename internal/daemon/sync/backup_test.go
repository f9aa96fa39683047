// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

func backup(t testing.TB, c Config) (*Backup, *Counts) {
	t.Helper()
	counts := &Counts{}
	c.Role, c.Interface = RoleBackup, "eth0"
	if err := c.Complete(func(string) (int, error) { return 1500, nil }); err != nil {
		t.Fatal(err)
	}
	return NewBackup(c, counts), counts
}

// message is a datagram of entries.
func message(t testing.TB, version, syncID uint8, entries ...*model.Connection) []byte {
	t.Helper()
	w, err := kernel.NewWriter(version, syncID, 0xffff)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range entries {
		r, err := recordOf(c)
		if err != nil {
			t.Fatal(err)
		}
		if fits, err := w.Add(&r); !fits || err != nil {
			t.Fatal(fits, err)
		}
	}
	return w.Take()
}

// ports are the client ports of entries.
func ports(entries []model.Connection) (list []int) {
	for _, c := range entries {
		list = append(list, int(c.Client.Port()))
	}
	slices.Sort(list)
	return list
}

// finish passes the same result for each entry.
func finish(b *Backup, now time.Time, err error) {
	errs := make([]error, len(b.Entries()))
	for i := range errs {
		errs[i] = err
	}
	b.Done(now, errs, nil)
}

// wants checks what was dropped, and that nothing else was.
func (c *Counts) wants(t testing.TB, want map[Reason]uint64) {
	t.Helper()
	for _, r := range Reasons() {
		if got := c.Dropped(r); got != want[r] {
			t.Errorf("dropped for %s: %d, want %d", r, got, want[r])
		}
	}
}

func TestBackupReadsWhatLinuxSends(t *testing.T) {
	for name, want := range map[string]int{"version-0": 8, "version-1": 26, "methods": 31} { // records
		b, counts := backup(t, Config{SyncID: 7})
		for _, datagram := range captured(t, name) {
			b.Receive(start, datagram)
		}
		if counts.Messages.Load() != 1 || int(counts.Records.Load()) != want || len(b.Entries()) != want ||
			!counts.Last().Equal(start) || int(counts.Bytes.Load()) != len(captured(t, name)[0]) {
			t.Errorf("%s: %d entries, %d messages, %d records", name, len(b.Entries()), counts.Messages.Load(), counts.Records.Load())
		}
		counts.wants(t, nil)
	}
}

func TestBackupFilters(t *testing.T) {
	good := message(t, 1, 7, connection(1), connection(2))
	cut := func(n int, change func([]byte)) []byte {
		b := slices.Clone(good[:n])
		change(b)
		return b
	}
	long := message(t, 1, 7, slices.Repeat([]*model.Connection{connection(1)}, 50)...)
	for _, c := range []struct {
		name     string
		syncID   uint8
		datagram []byte
		entries  int
		dropped  map[Reason]uint64
	}{
		{"its own ID", 7, good, 2, nil},
		{"any ID", 0, good, 2, nil},
		{"another ID", 8, good, 0, map[Reason]uint64{DropSyncID: 1}},
		{"another ID in version 0", 8, message(t, 0, 7, connection(1)), 0, map[Reason]uint64{DropSyncID: 1}},
		{"version 0", 7, message(t, 0, 7, connection(1)), 1, nil},
		{"nothing", 0, nil, 0, map[Reason]uint64{DropShort: 1}},
		{"a truncated one", 0, good[:60], 0, map[Reason]uint64{DropSize: 1}},
		{"a longer one than it says", 0, append(slices.Clone(good), 0), 0, map[Reason]uint64{DropSize: 1}},
		{"one that the buffer cut", 0, long[:1472], 0, map[Reason]uint64{DropLong: 1}},
		{"a malformed record", 0, cut(len(good), func(b []byte) { b[8+36+2] = 0x10 }), 1, map[Reason]uint64{DropMalformed: 1}},
		{"half a record", 0, cut(60, func(b []byte) { binary.BigEndian.PutUint16(b[2:], 60) }), 1, map[Reason]uint64{DropMalformed: 1}},
		{"a protocol", 0, cut(len(good), func(b []byte) { b[8+1] = 50 }), 1, map[Reason]uint64{DropProtocol: 1}},
		{"a state", 0, cut(len(good), func(b []byte) { b[8+9] = 11 }), 1, map[Reason]uint64{DropState: 1}},
		{"a method", 0, cut(len(good), func(b []byte) { b[8+7] = 4 }), 1, map[Reason]uint64{DropMethod: 1}},
		{"a helper", 0, cut(len(good), func(b []byte) { b[8+6] = 8 }), 1, map[Reason]uint64{DropHelper: 1}},
		{"an option", 0, append(cut(80, func(b []byte) { b[8+36+3] = 39; b[3] += 3 }), 4, 1, 0), 1, map[Reason]uint64{DropOption: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, counts := backup(t, Config{SyncID: c.syncID})
			b.Receive(start, c.datagram)
			if len(b.Entries()) != c.entries {
				t.Errorf("%d entries, want %d", len(b.Entries()), c.entries)
			}
			counts.wants(t, c.dropped)
			b.Receive(start, message(t, 1, c.syncID, connection(3)))
			if len(b.Entries()) != c.entries+1 {
				t.Error("the next message is not used")
			}
		})
	}
	b, counts := backup(t, Config{})
	engine := callTemplate("call")
	engine.Engine = "cookie"
	b.Receive(start, message(t, 1, 0, engine))
	if len(b.Entries()) != 0 {
		t.Error("an unknown engine")
	}
	counts.wants(t, map[Reason]uint64{DropEngine: 1})
}

func TestBackupUsesTimeouts(t *testing.T) {
	b, _ := backup(t, Config{})
	b.Timeouts = model.Timeouts{TCP: 42 * time.Second}
	b.Receive(start, message(t, 0, 0, connection(1)))
	if got := b.Entries()[0]; got.Timeout != 42*time.Second || got.Expires != 42*time.Second {
		t.Errorf("%+v", got)
	}
}

func TestBackupResults(t *testing.T) {
	b, counts := backup(t, Config{})
	receive := func() {
		b.Receive(start, message(t, 1, 0, connection(1), connection(2), connection(3), connection(4)))
	}
	receive()
	b.Done(start, []error{nil, fmt.Errorf("x: %w", model.ErrTableFull), errors.New("bad"), fmt.Errorf("x: %w", model.ErrNoServer)}, nil)
	counts.wants(t, map[Reason]uint64{DropTableFull: 1, DropRefused: 1})
	if len(b.Entries()) != 0 || counts.Unbound.Load() != 1 {
		t.Errorf("%d entries, %d unbound", len(b.Entries()), counts.Unbound.Load())
	}
	receive()
	b.Done(start, nil, errors.New("locked"))
	counts.wants(t, map[Reason]uint64{DropTableFull: 1, DropRefused: 1, DropTable: 4})
	if len(b.Entries()) != 0 || counts.Unbound.Load() != 1 {
		t.Errorf("%d entries, %d unbound", len(b.Entries()), counts.Unbound.Load())
	}
}

// What has no server is kept and tried again when the table has changed, with what is left
// of its time.
func TestBackupRetriesWhatHasNoServer(t *testing.T) {
	b, counts := backup(t, Config{})
	b.Receive(start, message(t, 1, 0, connection(1), connection(2), connection(3)))
	finish(b, start, model.ErrNoServer)
	b.Retry(start, 10)
	if len(b.Entries()) != 0 {
		t.Fatal("a retry without a change")
	}
	later := start.Add(5 * time.Minute)
	b.Changed()
	b.Retry(later, 2)
	if got := b.Entries(); len(got) != 2 || got[0].Expires != 10*time.Minute || got[0].Timeout != 10*time.Minute {
		t.Fatalf("%+v", got)
	}
	first := ports(b.Entries())
	b.Done(later, []error{nil, model.ErrNoServer}, nil)
	if counts.Unbound.Load() != 2 || counts.Bound.Load() != 1 {
		t.Errorf("%d unbound, %d bound", counts.Unbound.Load(), counts.Bound.Load())
	}
	b.Retry(later, 2)
	if got := ports(b.Entries()); len(got) != 1 || slices.Contains(first, got[0]) {
		t.Errorf("the second part: %v after %v", got, first)
	}
	finish(b, later, model.ErrNoServer)
	b.Retry(later, 2)
	if len(b.Entries()) != 0 {
		t.Errorf("again: %v", ports(b.Entries()))
	}
	// A retry does not prolong it.
	b.Expire(start.Add(15*time.Minute - 1))
	counts.wants(t, nil)
	b.Expire(start.Add(15 * time.Minute))
	counts.wants(t, map[Reason]uint64{DropExpired: 2})
	if counts.Unbound.Load() != 0 || len(b.Missing()) != 0 {
		t.Errorf("%d unbound, missing %v", counts.Unbound.Load(), b.Missing())
	}
	b.Changed()
	b.Retry(start, 2)
	if len(b.Entries()) != 0 {
		t.Error("an expired entry is tried again")
	}
}

// A later record of the flow is tried, and stands for the earlier one.
func TestBackupReplacesWhatHasNoServer(t *testing.T) {
	b, counts := backup(t, Config{})
	b.Receive(start, message(t, 1, 0, connection(1)))
	finish(b, start, model.ErrNoServer)

	other := connection(1)
	other.Server = at2
	b.Receive(start.Add(time.Minute), message(t, 1, 0, other))
	finish(b, start.Add(time.Minute), model.ErrNoServer)
	if got := b.Missing(); len(got) != 1 || got[0] != (Missing{"10.9.0.1:80/tcp", at2, 1}) {
		t.Errorf("%+v", got)
	}
	// The end of the connection that was replaced says nothing about this one.
	over := connection(1)
	over.State, over.Flags = "TIME_WAIT", model.ConnInactive
	b.Receive(start.Add(time.Minute), message(t, 1, 0, over))
	if len(b.Entries()) != 0 {
		t.Errorf("%+v", b.Entries())
	}
	counts.wants(t, map[Reason]uint64{DropStale: 1})
	// Unless that connection came back just before.
	b.Receive(start.Add(time.Minute), message(t, 1, 0, connection(1), over))
	if len(b.Entries()) != 2 {
		t.Errorf("%+v", b.Entries())
	}
	b.Done(start, nil, errors.New("locked"))
	counts.wants(t, map[Reason]uint64{DropStale: 1, DropTable: 2})
	// Its own end does.
	over.Server = at2
	b.Receive(start.Add(2*time.Minute), message(t, 1, 0, over))
	if len(b.Entries()) != 1 {
		t.Fatal("the end of the connection is not used")
	}
	finish(b, start.Add(2*time.Minute), nil)
	if counts.Unbound.Load() != 0 || counts.Bound.Load() != 1 || len(b.Missing()) != 0 {
		t.Errorf("%d unbound, %d bound, missing %v", counts.Unbound.Load(), counts.Bound.Load(), b.Missing())
	}
}

// Templates, engines' templates and connections of the same ends are different entries.
func TestBackupKeepsEntriesApart(t *testing.T) {
	b, counts := backup(t, Config{})
	plain, call := callTemplate("a"), callTemplate("b")
	plain.Engine, plain.EngineData = "", ""
	c := connection(0)
	c.Protocol, c.State, c.Client, c.Virtual = model.UDP, "UDP", call.Client, call.Virtual
	b.Receive(start, message(t, 1, 0, callTemplate("a"), call, plain, c))
	finish(b, start, model.ErrNoService)
	if counts.Unbound.Load() != 4 {
		t.Errorf("%d unbound, want 4", counts.Unbound.Load())
	}
	b.Changed()
	b.Retry(start, 100)
	if len(b.Entries()) != 4 {
		t.Errorf("%d are tried again", len(b.Entries()))
	}
}

func TestBackupBoundsWhatHasNoServer(t *testing.T) {
	b, counts := backup(t, Config{})
	b.unbound = newUnbound(2)
	b.Receive(start, message(t, 1, 0, connection(1), connection(2), connection(3), connection(1)))
	finish(b, start, model.ErrNoServer)
	counts.wants(t, map[Reason]uint64{DropUnbound: 1})
	if counts.Unbound.Load() != 2 {
		t.Errorf("%d unbound", counts.Unbound.Load())
	}
}

func TestMissing(t *testing.T) {
	b, _ := backup(t, Config{})
	if missing := b.Missing(); len(missing) != 0 {
		t.Errorf("nothing is missing: %v", missing)
	}
	marked, template, noService := connection(4), callTemplate("a"), connection(5)
	marked.Service = model.MarkKey(5, model.IPv4)
	template.Protocol, template.Virtual, template.Service, template.Engine = 0, at("0.0.0.5:0"), model.MarkKey(5, model.IPv4), ""
	other := connection(6)
	other.Server = at2
	noService.Virtual = at("10.9.0.9:53")
	b.Receive(start, message(t, 1, 0, noService))
	finish(b, start, fmt.Errorf("service x: %w", model.ErrNoService))
	b.Receive(start, message(t, 1, 0, connection(1), connection(2), other, marked, template))
	finish(b, start, fmt.Errorf("server x: %w", model.ErrNoServer))
	want := []Missing{
		{"10.9.0.1:80/tcp", at("10.2.0.2:8080"), 2},
		{"10.9.0.1:80/tcp", at("10.2.0.3:80"), 1},
		{"10.9.0.9:53/tcp", b.Missing()[2].Server, 1},
		{"fwmark 5", at("10.2.0.2:5060"), 1},
		{"fwmark 5 or 10.9.0.1:80/tcp", at("10.2.0.2:8080"), 1},
	}
	if diff := cmp.Diff(want, b.Missing(), same); diff != "" || b.Missing()[2].Server.IsValid() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := []string{b.Missing()[0].String(), b.Missing()[2].String()}; cmp.Diff(got, []string{"server 10.2.0.2:8080 of 10.9.0.1:80/tcp", "service 10.9.0.9:53/tcp"}) != "" {
		t.Errorf("they are named %q", got)
	}
}

// A record takes no memory of its own.
func TestBackupTakesNoMemoryForRecords(t *testing.T) {
	b, _ := backup(t, Config{})
	var entries []*model.Connection
	for i := range 40 {
		entries = append(entries, connection(i))
	}
	datagram := message(t, 1, 0, entries...)
	errs := make([]error, 40*50)
	if n := testing.AllocsPerRun(10, func() {
		for range 50 {
			b.Receive(start, datagram)
		}
		b.Done(start, errs, nil)
	}); n > 5 {
		t.Errorf("%v allocations for 2000 records", n)
	}
}

// Whatever comes has an effect only if it is a message with records: each entry is one that
// a table can have.
func FuzzBackup(f *testing.F) {
	for _, name := range []string{"version-0", "version-1", "methods"} {
		for _, b := range captured(f, name) {
			f.Add(b)
		}
	}
	f.Add(message(f, 1, 7, connection6(1), callTemplate("call")))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		b, counts := backup(t, Config{SyncID: 7})
		b.Receive(start, datagram)
		m, err := kernel.Read(datagram)
		whole := err == nil || !errors.Is(err, kernel.ErrShort) && !errors.Is(err, kernel.ErrSize)
		used := whole && m.SyncID == 7
		if used != (counts.Messages.Load() == 1) || !used && (len(b.Entries()) > 0 || counts.Records.Load() > 0) {
			t.Fatalf("%v, ID %d: %d entries, %d messages", err, m.SyncID, len(b.Entries()), counts.Messages.Load())
		}
		var messages, dropped uint64
		for _, r := range Reasons() {
			if r.OfMessages() {
				messages += counts.Dropped(r)
			} else if r != DropOption {
				dropped += counts.Dropped(r)
			}
		}
		if want := err != nil || !used; (messages == 1) != want {
			t.Fatalf("%v: %d messages dropped", err, messages)
		}
		if used && uint64(len(m.Records)) != uint64(len(b.Entries()))+dropped {
			t.Fatalf("%d records, %d entries, %d dropped", len(m.Records), len(b.Entries()), dropped)
		}
		for i := range b.Entries() {
			c := &b.Entries()[i]
			if _, ok := c.StateNumber(); !ok || !c.Forward.Known() || c.Timeout <= 0 || c.Timeout > maxTimeout || c.Expires != c.Timeout ||
				!c.Client.IsValid() || !c.Virtual.IsValid() || !c.Server.IsValid() || c.RealServer.IsValid() {
				t.Fatalf("%+v", c)
			}
		}
		finish(b, start, model.ErrNoServer)
		b.Changed()
		b.Retry(start, 1000)
		finish(b, start, nil)
		if counts.Unbound.Load() != 0 || len(b.Missing()) != 0 || b.unbound.len() != 0 {
			t.Fatalf("%d remain", counts.Unbound.Load())
		}
	})
}

func BenchmarkBackup(b *testing.B) {
	machine, _ := backup(b, Config{})
	var entries []*model.Connection
	for i := range 40 {
		entries = append(entries, connection(i))
	}
	datagram, errs := message(b, 1, 0, entries...), make([]error, batchRecords)
	for i := 0; i < b.N; i += 40 {
		machine.Receive(start, datagram)
		if len(machine.Entries()) > batchRecords-40 {
			machine.Done(start, errs, nil)
		}
	}
}
