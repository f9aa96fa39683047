// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

// these yields entries, as a director does.
func these(entries ...*model.Connection) iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, c := range entries {
			if !yield(*c, nil) {
				return
			}
		}
	}
}

// A backup gets every entry of a table, with the whole timeout of its state.
func TestTransferIsWhatABackupReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Role: RoleMaster, SyncID: 9, Interface: "eth0"}
		if err := config.Complete(func(string) (int, error) { return 1500, nil }); err != nil {
			t.Fatal(err)
		}
		var entries []*model.Connection
		want := map[model.EntryKey]model.Connection{}
		for i := range 1000 {
			c := connection(i)
			if i%2 == 1 {
				c = connection6(i)
			}
			c.State, c.Timeout = "ESTABLISHED", 7*time.Second // not a connection's
			if i%3 == 0 {
				c.State = "CLOSE_WAIT"
			}
			entries = append(entries, c)
			is := expected(*c, 1, model.Timeouts{})
			is.Timeout = map[string]time.Duration{"ESTABLISHED": 42 * time.Minute, "CLOSE_WAIT": time.Minute}[c.State]
			is.Expires = is.Timeout
			want[c.Key()] = is
		}
		hairpin, mixed := connection(5000), connection(5002)
		hairpin.Flags |= model.ConnHairpin
		mixed.Server = netip.MustParseAddrPort("[2001:db8::2]:80")
		entries = append(entries, hairpin, mixed)

		there, counts := newFakeTable(), &Counts{}
		b := NewBackup(Config{SyncID: 9, MaxLen: 1472}, counts)
		longest, told := 0, uint64(0)
		transfer := Transfer{Timeouts: model.Timeouts{TCP: 42 * time.Minute}, Sent: func(n uint64) { told = n }}
		err := transfer.send(context.Background(), config, these(entries...), func(message []byte) error {
			longest = max(longest, len(message))
			b.Receive(start, message)
			errs, err := there.Synchronize(b.Entries())
			b.Done(start, errs, err)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, there.all(), same); diff != "" {
			t.Errorf("(-sent +backup):\n%s", diff)
		}
		if transfer.Entries != 1000 || told != 1000 || transfer.Messages != counts.Messages.Load() || transfer.Bytes != counts.Bytes.Load() || longest > 1472 {
			t.Errorf("%+v, told %d, longest %d", transfer, told, longest)
		}
		refused := uint64(0)
		for why, n := range transfer.Refused {
			refused += n
			if !strings.Contains(why, "hairpin") && !strings.Contains(why, "no server any more") && !strings.Contains(why, "families") {
				t.Errorf("%d refused: %s", n, why)
			}
		}
		if refused != 2 {
			t.Errorf("refused: %v", transfer.Refused)
		}
	})
}

// The rate is kept, without bursts of more than a pause has.
func TestTransferKeepsItsRate(t *testing.T) {
	for _, rate := range []int{100, 5000, 200_000} {
		synctest.Test(t, func(t *testing.T) {
			var entries []*model.Connection
			for i := range 4000 {
				entries = append(entries, connection(i))
			}
			began, burst, most, last := time.Now(), 0, 0, time.Time{}
			transfer := Transfer{Rate: rate}
			err := transfer.send(context.Background(), Config{MaxLen: 1472}, these(entries...), func([]byte) error {
				if burst++; time.Now() != last {
					burst, last = 1, time.Now()
				}
				most = max(most, burst)
				return nil
			})
			const per = 40 // entries in a message
			took, want := time.Since(began), time.Duration(4000-per)*time.Second/time.Duration(rate)
			if err != nil || took < want-transferPause || took > want+transferPause {
				t.Errorf("%d/s: %v, %v, want %v", rate, err, took, want)
			}
			if allowed := 2 + int(float64(rate)*transferPause.Seconds()/per); most > allowed {
				t.Errorf("%d/s: %d messages at once, at most %d", rate, most, allowed)
			}
		})
	}
}

// It ends with its context, with what its table or its socket reports.
func TestTransferEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var many []*model.Connection
		for i := range 1000 {
			many = append(many, connection(i))
		}
		write := func([]byte) error { return nil }
		transfer := Transfer{Rate: 100}
		if err := transfer.send(ctx, Config{MaxLen: 1472}, these(many...), write); !errors.Is(err, context.DeadlineExceeded) || transfer.Entries == 0 || transfer.Entries > 150 {
			t.Errorf("%v after %d entries", err, transfer.Entries)
		}
		failing := errors.New("failing")
		broken := func(yield func(model.Connection, error) bool) { yield(model.Connection{}, failing) }
		if err := (&Transfer{}).send(context.Background(), Config{MaxLen: 1472}, broken, write); !errors.Is(err, failing) {
			t.Error(err)
		}
		if err := (&Transfer{}).send(context.Background(), Config{MaxLen: 1472}, these(many[0]), func([]byte) error { return failing }); !errors.Is(err, failing) {
			t.Error(err)
		}
		for _, rate := range []int{-1, MaxRate + 1} {
			if err := (&Transfer{Rate: rate}).send(context.Background(), Config{MaxLen: 1472}, these(), write); err == nil {
				t.Errorf("rate %d: no error", rate)
			}
		}
	})
}

// Through a socket, to a backup that runs, though it does nothing for the time of the transfer.
func TestTransferOverANetwork(t *testing.T) {
	a, b := twoHosts(t)
	there := newFakeTable()
	run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: there})
	var entries []*model.Connection
	for i := range 5000 {
		entries = append(entries, connection(i))
	}
	transfer := Transfer{}
	there.mu.Lock()
	err := a.Do(func() error {
		return transfer.Send(context.Background(), Config{Role: RoleMaster, Interface: "eth0"}, these(entries...))
	})
	there.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "every entry is on the backup", func() bool { return len(there.all()) == 5000 })
	err = a.Do(func() error {
		return (&Transfer{}).Send(context.Background(), Config{Role: RoleMaster, Interface: "eth9"}, these(entries...))
	})
	if err == nil || !strings.Contains(err.Error(), "eth9: no such interface") {
		t.Error(err)
	}
}
