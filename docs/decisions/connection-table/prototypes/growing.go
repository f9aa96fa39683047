// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// As in bench.h.
const (
	columns = 4096
	column  = 32 // [ns]
)

const packetsPerOpening = 4 // of the mixed load

var openings = 100_000 // in a second, at most; 0: as many as it can

// growing has a table grow while packets pass: each fourth opens a flow, the others are of flows
// that are open. Its costs are compared with the same load in a table that has the room already.
func growing(d design, object string, entries int) (out []figure, err error) {
	entries = entries/batch*batch + few
	_, calm, err := underLoad(d, object, entries, entries+entries/8)
	if err != nil {
		return nil, fmt.Errorf("%s, with room: %w", d.name, err)
	}
	out = append(out, figure{"mean of a packet, with room", "ns", calm.mean}, figure{"its p99.9", "us", calm.p999 / 1e3})
	if !d.grows && !d.allocates {
		return out, nil
	}
	most, grown, err := underLoad(d, object, entries, 0)
	if err != nil {
		return nil, fmt.Errorf("%s, growing: %w", d.name, err)
	}
	return append(out,
		figure{"mean of a packet, growing", "ns", grown.mean},
		figure{"growing to room", "times", grown.mean / calm.mean},
		figure{"p99.9, growing", "us", grown.p999 / 1e3},
		figure{"longest, growing", "us", grown.longest / 1e3},
		figure{"refused of 1000, growing", "", 1000 * float64(grown.failed) / float64(entries)},
		figure{"bytes an entry, most while growing", "B", most}), nil
}

// A distribution is of packets' costs [ns]; the mean is without that of the clock.
type distribution struct {
	mean, p999, longest float64
	failed              uint64
}

// underLoad runs the mixed load on CPU 0 until so many flows are open; the process is on the
// others. It returns the most bytes of memlock for an entry above 1 M.
func underLoad(d design, object string, entries, capacity int) (most float64, dist distribution, err error) {
	t, err := load(d, object, capacity)
	if err != nil {
		return 0, dist, err
	}
	defer t.Close()
	release, err := bind(0)
	if err != nil {
		return 0, dist, err
	}
	defer release()
	if err := t.fill(0, few, 60*minute); err != nil {
		return 0, dist, err
	}
	q := request{Share: packetsPerOpening, Now: now(), Timeout: 60 * minute, Opened: few}.order(few)
	clock, err := t.each("clock", 0, q, few)
	if err != nil {
		return 0, dist, err
	}
	var over atomic.Bool
	process := make(chan error, 1)
	go func() {
		for !over.Load() {
			if t.keepUp != nil && !t.fixed {
				if err := t.keepUp(t); err != nil {
					process <- err
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
		process <- nil
	}()
	var packets, spent uint64
	for began := time.Now(); int(q.Opened) < entries && err == nil; {
		q.Count = smallBatch
		if err = t.run("mixed", 0, &q); err != nil {
			break
		}
		q.Begin += q.Count
		dist.failed += q.Failed
		packets += q.Done
		spent += q.Spent
		dist.longest = max(dist.longest, float64(q.Longest))
		if openings != 0 {
			due := time.Duration(q.Opened-few) * time.Second / time.Duration(openings)
			time.Sleep(due - time.Since(began))
		}
		select {
		case err = <-process:
			if err == nil {
				err = fmt.Errorf("the process ended")
			}
			return 0, dist, err
		default:
		}
		if q.Opened > many && q.Opened/(smallBatch/packetsPerOpening)%64 == 0 {
			most = max(most, float64(t.memlock())/float64(q.Opened))
		}
	}
	over.Store(true)
	if e := <-process; err == nil {
		err = e
	}
	if err != nil {
		return 0, dist, err
	}
	dist.mean = float64(spent)/float64(packets) - float64(clock.Spent)/float64(clock.Done)
	dist.p999, err = t.quantile(0.999)
	return most, dist, err
}

// quantile is of the histogram, with the cost of the clock [ns].
func (t *table) quantile(share float64) (float64, error) {
	count := make([]uint64, columns)
	var sum, below float64
	for at := range uint32(columns) {
		var each []uint64
		if err := t.Maps["histogram"].Lookup(at, &each); err != nil {
			return 0, err
		}
		for _, n := range each {
			count[at] += n
		}
		sum += float64(count[at])
	}
	for at, n := range count {
		below += float64(n)
		if n > 0 && below >= share*sum {
			return float64(at+1) * column, nil
		}
	}
	return 0, fmt.Errorf("the histogram is empty")
}

// memory is what a table takes at rest, and for an entry at several fills.
func memory(d design, object string, fills []int) (out []figure, err error) {
	release, err := bind(0)
	if err != nil {
		return nil, err
	}
	defer release()
	before, err := available()
	if err != nil {
		return nil, err
	}
	t, err := load(d, object, 0)
	if err != nil {
		return nil, err
	}
	after, err := available()
	if err != nil {
		t.Close()
		return nil, err
	}
	out = append(out,
		figure{"at rest, MemAvailable", "MB", float64(before-after) / (1 << 20)},
		figure{"at rest, memlock", "MB", float64(t.memlock()) / (1 << 20)})
	t.Close()
	for _, fill := range fills {
		capacity := 0
		if !d.grows {
			capacity = fill
		}
		before, err := available()
		if err != nil {
			return nil, err
		}
		t, err := load(d, object, capacity)
		if err != nil {
			return nil, err
		}
		if err = t.fill(0, fill, 60*minute); err != nil {
			t.Close()
			return nil, err
		}
		after, err := available()
		lock := t.memlock()
		if err == nil && fill == fills[len(fills)-1] {
			var idle []figure
			idle, err = t.idle(fmt.Sprintf("%.1f M", float64(fill)/1e6))
			out = append(out, idle...)
		}
		t.Close()
		if err != nil {
			return nil, err
		}
		out = append(out,
			figure{fmt.Sprintf("bytes an entry at %d, MemAvailable", fill), "B", float64(before-after) / float64(fill)},
			figure{fmt.Sprintf("bytes an entry at %d, memlock", fill), "B", float64(lock) / float64(fill)})
	}
	return out, nil
}

// settling is how often MemAvailable is read until it rests, at most: three seconds.
const settling = 12

// available is MemAvailable, when it has come to rest: maps that are closed are freed later
// [bytes].
func available() (int64, error) {
	runtime.GC()
	var last []int64
	for range settling {
		n, err := memAvailable()
		if err != nil {
			return 0, err
		}
		last = append(last, n)
		if k := len(last); k >= 4 {
			last = last[k-4:]
			if slices.Max(last)-slices.Min(last) < 256<<10 {
				break
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
	slices.Sort(last)
	return last[len(last)/2], nil
}

func memAvailable() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
