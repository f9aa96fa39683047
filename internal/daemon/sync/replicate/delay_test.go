// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// delays measure how long openings take from the master's source, which tells of them, to the
// table of the backup. Both are of this process, and have one clock.
type delays struct {
	mu      sync.Mutex
	told    map[model.EntryKey]time.Time // and not applied
	applied []time.Duration
}

// master has a master's openings noted.
func (d *delays) master(o *Options) {
	tell := o.Tell
	o.Tell = func() (Source, error) {
		s, err := tell()
		return timedSource{s, d}, err
	}
}

// backup has what a backup applies noted.
func (d *delays) backup(o *Options) { o.Table = timedTable{o.Table, d} }

// take returns what was measured since the last call, and waits for what is not applied.
func (d *delays) take(t *testing.T, limit time.Duration) (list []time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		d.mu.Lock()
		n := len(d.told)
		if n == 0 {
			list, d.applied = d.applied, nil
		}
		d.mu.Unlock()
		if n == 0 {
			return list
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d entries are not in the backup's table after %v", n, limit)
		}
	}
}

type timedSource struct {
	Source
	d *delays
}

func (s timedSource) Each(ctx context.Context, call func([]director.Told) error) error {
	return s.Source.Each(ctx, func(told []director.Told) error {
		now := time.Now()
		s.d.mu.Lock()
		for i := range told {
			if told[i].Kind == director.ConnectionOpen {
				if s.d.told == nil {
					s.d.told = map[model.EntryKey]time.Time{}
				}
				s.d.told[told[i].Conn.Key()] = now
			}
		}
		s.d.mu.Unlock()
		return call(told)
	})
}

type timedTable struct {
	Table
	d *delays
}

func (t timedTable) Replicate(entries []model.Connection) ([]error, error) {
	errs, err := t.Table.Replicate(entries)
	now := time.Now()
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	for i := range entries {
		key := entries[i].Key()
		if at, ok := t.d.told[key]; ok {
			delete(t.d.told, key)
			t.d.applied = append(t.d.applied, now.Sub(at))
		}
	}
	return errs, err
}

// quantile is that of some times: the smallest that is not exceeded by such a share.
func quantile(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// summary describes times in short.
func summary(list []time.Duration) string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d entries: median %v, p99 %v, longest %v", len(list), round(quantile(list, 0.5)), round(quantile(list, 0.99)), round(quantile(list, 1)))
}

func TestQuantile(t *testing.T) {
	list := []time.Duration{5, 1, 4, 2, 3}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.79: 4, 0.99: 5, 1: 5} {
		if got := quantile(list, share); got != want {
			t.Errorf("%g: %d, want %d", share, got, want)
		}
	}
}
