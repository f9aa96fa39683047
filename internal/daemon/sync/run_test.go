// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// twoHosts are network namespaces with a link between them, which is eth0 in both.
func twoHosts(t *testing.T) (a, b *host.Namespace) {
	t.Helper()
	a, b = testenv.Namespace(t, "master"), testenv.Namespace(t, "backup")
	for _, ns := range []*host.Namespace{a, b} {
		if err := ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Connect(host.End{NS: a, Name: "eth0"}, host.End{NS: b, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, ns := range []*host.Namespace{a, b} {
		// The address is tentative for a moment, even if the kernel looks for no duplicates.
		eventually(t, "the link-local address can be used", func() (is bool) {
			if err := ns.Do(func() error {
				c, err := net.Dial("udp6", "[ff02::81%eth0]:9")
				if is = err == nil; is {
					c.Close()
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return is
		})
		address := netip.AddrFrom4([4]byte{10, 7, 0, byte(i + 1)})
		if err := ns.AddAddresses("eth0", netip.PrefixFrom(address, 24)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

// running is a role in a namespace.
type running struct {
	counts *Counts
	cancel context.CancelFunc
	result chan error
}

func run(t *testing.T, ns *host.Namespace, c Config, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{counts: &Counts{}, cancel: cancel, result: make(chan error, 1)}
	ready := make(chan struct{})
	o.Log, o.Counts, o.Ready = slog.New(slog.DiscardHandler), r.counts, func() { close(ready) }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.result <- ns.Do(func() error { return Run(ctx, c, o) })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-ready:
	case err := <-r.result:
		t.Fatalf("%s: %v", c.Role, err)
	}
	return r
}

// end ends a role, which is no error.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.result; err != nil {
		t.Error(err)
	}
}

func TestMasterAndBackupOverANetwork(t *testing.T) {
	for _, c := range []struct {
		name    string
		group   string
		threads uint32
		entry   func(int) *model.Connection
	}{
		{"IPv4", "224.0.0.81", 1, connection},
		{"IPv4, eight ports", "239.7.7.7", 8, connection6},
		{"IPv6", "ff02::81", 1, connection6},
		{"IPv6, four ports", "ff15::81", 4, connection},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := twoHosts(t)
			config := Config{SyncID: 3, Interface: "eth0", Group: netip.MustParseAddr(c.group)}
			there, here := newFakeTable(), newFakeTable()
			there.settings = []director.Setting{{Name: "sync_ports", Value: c.threads}, {Name: "sync_sock_size", Value: 1 << 21}}
			here.settings = there.settings
			source := newFakeSource()
			config.Role = RoleBackup
			backup := run(t, b, config, Options{Table: there})
			config.Role = RoleMaster
			master := run(t, a, config, Options{Table: here, Tell: func() (Source, error) { return source, nil }})

			const n = 12000
			want := map[model.EntryKey]model.Connection{}
			for i := 0; i < n; i += 500 {
				var batch []*model.Connection
				for j := range 500 {
					e := c.entry(i + j)
					want[e.Key()] = expected(*e, 1, model.Timeouts{})
					batch = append(batch, e)
				}
				source.batches <- told(batch...)
			}
			eventually(t, "every entry is on the backup", func() bool { return len(there.all()) == n })
			if diff := cmp.Diff(want, there.all(), same); diff != "" {
				t.Errorf("(-master +backup):\n%s", diff)
			}
			if len(here.all()) != 0 || there.most > batchRecords {
				t.Errorf("%d entries at the master, at most %d in one call", len(here.all()), there.most)
			}
			for _, counts := range []*Counts{master.counts, backup.counts} {
				eventually(t, "everything is counted", func() bool { return counts.Records.Load() == n })
				if m := counts.Messages.Load(); m < n/40 || counts.Bytes.Load() < n*36 || time.Since(counts.Last()) > time.Minute {
					t.Errorf("%d messages, %d bytes, the last %v", m, counts.Bytes.Load(), counts.Last())
				}
				counts.wants(t, nil)
			}

			source.lost <- 7
			eventually(t, "losses of the ring are counted", func() bool { return master.counts.Lost.Load() == 7 })

			// What has not been sent is, at the end.
			last := c.entry(n)
			closed := told(c.entry(n + 1))
			closed[0].Kind = director.ConnectionClose
			source.batches <- closed // which is not for backups
			source.batches <- told(last)
			source.batches <- nil // it has taken the one before
			master.end(t)
			eventually(t, "the last entry is on the backup", func() bool { return len(there.all()) == n+1 })
			backup.end(t)
			if len(there.all()) != n+1 {
				t.Errorf("%d entries, want %d", len(there.all()), n+1)
			}
			select {
			case <-source.closed:
			default:
				t.Error("the source is open")
			}
		})
	}
}

// The version follows the setting while a master runs.
func TestVersionChangesWhileAMasterRuns(t *testing.T) {
	a, b := twoHosts(t)
	there, here, source := newFakeTable(), newFakeTable(), newFakeSource()
	there.timeouts.TCP = 42 * time.Second
	run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: there})
	run(t, a, Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1}, Options{Table: here, Tell: func() (Source, error) { return source, nil }})
	timeout := func(want time.Duration) func() bool {
		return func() bool {
			source.batches <- told(connection(1))
			return there.all()[connection(1).Key()].Timeout == want
		}
	}
	eventually(t, "a timeout of version 1", timeout(15*time.Minute))
	here.set(func() { here.settings = []director.Setting{{Name: "sync_version"}} })
	eventually(t, "a timeout of version 0", timeout(42*time.Second))
	here.set(func() { here.settings = nil })
	eventually(t, "a timeout of version 1 again", timeout(15*time.Minute))
}

// What is missing is reported, and entered when it is added.
func TestBackupReportsWhatIsMissing(t *testing.T) {
	a, b := twoHosts(t)
	there, source := newFakeTable(), newFakeSource()
	there.lacks[connection(1).Server] = true
	reports, changed := make(chan []Missing, 100), make(chan struct{}, 1)
	backup := run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{
		Table: there, Changed: changed, Missing: func(m []Missing) { reports <- slices.Clone(m) },
	})
	master := run(t, a, Config{Role: RoleMaster, Interface: "eth0"}, Options{Table: newFakeTable(), Tell: func() (Source, error) { return source, nil }})
	var entries []*model.Connection
	for i := range 41 { // one more than fits a message
		entries = append(entries, connection(i))
	}
	source.batches <- told(entries...)
	source.batches <- nil
	master.end(t)
	want := []Missing{{"10.9.0.1:80/tcp", connection(1).Server, 41}}
	for got := []Missing(nil); !slices.Equal(got, want); {
		select {
		case got = <-reports:
		case <-time.After(time.Minute):
			t.Fatalf("%v is not reported", want)
		}
	}
	there.set(func() { clear(there.lacks) })
	changed <- struct{}{}
	eventually(t, "the entries are there", func() bool { return len(there.all()) == 41 })
	select {
	case got := <-reports:
		if len(got) != 0 {
			t.Errorf("still missing: %v", got)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is missing any more, and it is not reported")
	}
	if backup.counts.Unbound.Load() != 0 || backup.counts.Bound.Load() != 41 {
		t.Errorf("%d unbound, %d bound", backup.counts.Unbound.Load(), backup.counts.Bound.Load())
	}
}

// A role ends with an error when its interface, its source or its director is gone.
func TestRunEndsWithErrors(t *testing.T) {
	a, b := twoHosts(t)
	ended := func(r *running, want string) {
		t.Helper()
		select {
		case err := <-r.result:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			r.result <- err
		case <-time.After(time.Minute):
			t.Fatalf("it has not ended: want %q", want)
		}
	}
	source := newFakeSource()
	tell := func() (Source, error) { return source, nil }
	master := run(t, a, Config{Role: RoleMaster, Interface: "eth0"}, Options{Table: newFakeTable(), Tell: tell})
	close(source.batches)
	ended(master, errSource.Error())

	there := newFakeTable()
	there.err = errors.New("the lock is held")
	backup := run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: there})
	source = newFakeSource()
	master = run(t, a, Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1}, Options{Table: newFakeTable(), Tell: tell})
	source.batches <- told(connection(1), connection(2))
	// The last entry of a message follows after two seconds.
	eventually(t, "an entry is dropped", func() bool { return backup.counts.Dropped(DropTable) >= 1 })
	there.set(func() { there.err = nil })
	source.batches <- told(connection(3))
	eventually(t, "the next one is entered", func() bool { return len(there.all()) >= 1 })
	there.set(func() { there.err = director.ErrReplaced })
	source.batches <- told(connection(4))
	ended(backup, director.ErrReplaced.Error())

	backup = run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: newFakeTable()})
	if err := a.DeleteLink("eth0"); err != nil {
		t.Fatal(err)
	}
	ended(master, "interface eth0 is gone")
	ended(backup, "interface eth0 is gone")
}

func TestRunRefuses(t *testing.T) {
	a, b := twoHosts(t)
	for _, ns := range []*host.Namespace{a, b} {
		if err := ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Connect(host.End{NS: a, Name: "eth1"}, host.End{NS: b, Name: "eth1"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	tableOf := func(s ...director.Setting) *fakeTable {
		table := newFakeTable()
		table.settings = s
		return table
	}
	for _, c := range []struct {
		name   string
		config Config
		table  *fakeTable
		want   string
	}{
		{"no interface", Config{Role: RoleMaster}, tableOf(), "--mcast-interface"},
		{"an unknown interface", Config{Role: RoleMaster, Interface: "eth7"}, tableOf(), "interface eth7: no such interface"},
		{"an interface without an IPv4 address", Config{Role: RoleMaster, Interface: "eth1"}, tableOf(), "interface eth1 has no IPv4 address: add one (ip address add ADDRESS dev eth1)"},
		{"an interface without an IPv6 address", Config{Role: RoleMaster, Interface: "eth1", Group: netip.MustParseAddr("ff02::81")}, tableOf(), "interface eth1: send to [ff02::81]:8848: connect"},
		{"no port for the last thread", Config{Role: RoleMaster, Interface: "eth0", Port: 65533}, tableOf(director.Setting{Name: "sync_ports", Value: 4}), "port 65533 with 4 threads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := a.Do(func() error {
				return Run(t.Context(), c.config, Options{
					Table: c.table, Log: slog.New(slog.DiscardHandler), Counts: &Counts{},
					Tell: func() (Source, error) { return nil, errSource }, Ready: func() { t.Error("it has begun") },
				})
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	err := a.Do(func() error {
		return Run(t.Context(), Config{Role: RoleMaster, Interface: "eth0"}, Options{
			Table: tableOf(), Log: slog.New(slog.DiscardHandler), Counts: &Counts{}, Tell: func() (Source, error) { return nil, errSource },
		})
	})
	if !errors.Is(err, errSource) {
		t.Errorf("%v, want %v", err, errSource)
	}
}

// A backup tells the director that it runs, for a while, and that it has ended.
func TestBackupStandsBy(t *testing.T) {
	_, ns := twoHosts(t)
	table := newFakeTable()
	backup := run(t, ns, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: table})
	told := func() (standby time.Duration) {
		table.set(func() { standby = table.standby })
		return standby
	}
	first := told() // before the clock, by which it is renewed each second
	now, err := director.BootTime()
	if err != nil {
		t.Fatal(err)
	}
	if left := first - now; left <= 0 || left > standByFor {
		t.Errorf("it runs for another %v, want at most %v", left, standByFor)
	}
	eventually(t, "it is told again", func() bool { return told() > first })
	backup.end(t)
	if told() != 0 {
		t.Error("it has not ended")
	}
}

// A backup that waits for the director's lock goes on to stand by.
func TestBackupStandsByWhileItWaits(t *testing.T) {
	t.Parallel()
	_, ns := twoHosts(t)
	table := newFakeTable()
	table.extended = make(chan time.Duration)
	run(t, ns, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: table})
	busy := make(chan struct{})
	table.set(func() { table.busy = busy })
	<-busy // it waits
	table.set(func() { table.busy = nil })
	t.Cleanup(func() { busy <- struct{}{} }) // before the role ends
	for range 2 {
		now, err := director.BootTime()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case until := <-table.extended:
			if left := until - now; left <= standByFor-2*interval {
				t.Errorf("it runs for another %v", left)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not say that it runs")
		}
	}
}
