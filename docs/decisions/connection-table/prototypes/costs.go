// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"fmt"
	"runtime"
	"sync"
)

// A figure is one value of a design: lower is better, if nothing else is said.
type figure struct {
	name  string
	unit  string
	value float64
}

// minute is the timeout of entries that are to stay [ns].
const minute = 60_000_000_000

const (
	few     = 1 << 16
	many    = 1 << 20
	sample  = 1 << 15
	absent  = 1 << 28 // numbers of flows that are never opened
	budget  = 1 << 13 // entries of a callback of the sweep, if the design has a cursor
	longest = 1 << 20 // callbacks of a pass, at most
)

// fill opens the flows from..to.
func (t *table) fill(from, to int, timeout uint64) error {
	q := sequence(from)
	q.Now, q.Timeout = now(), timeout
	sum, err := t.each("open", 0, q, to-from)
	if err != nil {
		return err
	}
	if sum.Failed != 0 && !t.evicts {
		return fmt.Errorf("%s: %d of %d flows were not opened", t.name, sum.Failed, to-from)
	}
	return nil
}

// per is the time of one flow [ns], without that of the loop.
func (t *table) per(program string, q request, count int) (float64, request, error) {
	empty, err := t.each("nothing", 0, q, count)
	if err != nil {
		return 0, empty, err
	}
	sum, err := t.each(program, 0, q, count)
	return (float64(sum.NS) - float64(empty.NS)) / float64(count), sum, err
}

// costs measures find, open and end at several fills, and the sweep.
func costs(d design, object string) (out []figure, err error) {
	release, err := bind(0)
	if err != nil {
		return nil, err
	}
	defer release()
	add := func(name, unit string, value float64) { out = append(out, figure{name, unit, value}) }

	// A table for 1 M entries, as it fills.
	t, err := load(d, object, many)
	if err != nil {
		return nil, err
	}
	defer func() {
		if t != nil {
			t.Close()
		}
	}()
	open := func(name string, first int) error {
		q := sequence(first)
		q.Now, q.Timeout = now(), 10*minute
		ns, sum, err := t.per("open", q, sample)
		if err != nil {
			return err
		}
		if sum.Failed != 0 && !d.evicts {
			return fmt.Errorf("%s: %s: %d were not opened", d.name, name, sum.Failed)
		}
		add(name, "ns", ns)
		return nil
	}
	find := func(name string, q request, count int, want uint64) error {
		q.Now = now()
		if _, err := t.each("find", 0, q, count); err != nil {
			return err
		}
		ns, sum, err := t.per("find", q, count)
		if err != nil {
			return err
		}
		if sum.Done != want && !d.evicts {
			return fmt.Errorf("%s: %s: %d found, want %d", d.name, name, sum.Done, want)
		}
		add(name, "ns", ns)
		if d.evicts && want == many {
			add("lost of 1 M entries", "%", 100*(1-float64(sum.Done)/many))
		}
		return nil
	}
	for _, program := range []string{"hash", "siphash"} {
		ns, _, err := t.per(program, request{}.order(many), many)
		if err != nil {
			return nil, err
		}
		add(program, "ns", ns)
	}
	if err := open("open, empty", 0); err != nil {
		return nil, err
	}
	if err := t.fill(sample, few, 10*minute); err != nil {
		return nil, err
	}
	if err := find("find, 1 flow", request{First: 4711}, few, few); err != nil {
		return nil, err
	}
	if err := find("find, 65 536", request{}.order(few), few, few); err != nil {
		return nil, err
	}
	if err := find("find, absent of 65 536", request{First: absent}.order(few), few, 0); err != nil {
		return nil, err
	}
	at := many * 60 / 100
	if err := t.fill(few, at, 10*minute); err != nil {
		return nil, err
	}
	if err := open("open, 60 %", at); err != nil {
		return nil, err
	}
	// What is free is spread over the table: flows of a sample of all end, others begin.
	full := many * 98 / 100
	if err := t.fill(at+sample, full, 10*minute); err != nil {
		return nil, err
	}
	ns, sum, err := t.per("end", request{}.order(many/2), sample)
	if err != nil {
		return nil, err
	}
	if sum.Done != sample && !d.evicts {
		return nil, fmt.Errorf("%s: %d of %d ended", d.name, sum.Done, sample)
	}
	add("end", "ns", ns)
	if err := open("open, 95 %", full); err != nil {
		return nil, err
	}
	t.Close()

	// 1 M entries, all present.
	if t, err = load(d, object, many+many/16); err != nil {
		return nil, err
	}
	began := now()
	if err := t.fill(0, many, 20*minute); err != nil {
		return nil, err
	}
	if err := find("find, 1 M", request{}.order(many), many, many); err != nil {
		return nil, err
	}
	if err := find("find, absent of 1 M", request{First: absent}.order(many), many, 0); err != nil {
		return nil, err
	}
	if t.Programs["evacuate"] != nil {
		ns, sum, err := t.per("evacuate", request{}.order(many), sample)
		if err != nil {
			return nil, err
		}
		if sum.Failed > sample/50 { // in chains
			return nil, fmt.Errorf("%s: %d of %d entries were not moved", d.name, sum.Failed, sample)
		}
		add("find and move an entry", "ns", ns)
	}
	idle, err := t.idle("1 M")
	if err != nil {
		return nil, err
	}
	out = append(out, idle...)
	over, err := t.pass(began + 21*minute)
	if err != nil {
		return nil, err
	}
	add("ends 1 M entries, one of them", "ns", float64(over.total)/many)
	add("longest callback, all of 1 M due", "us", float64(over.longest)/1e3)
	left, err := t.each("find", 0, request{Now: began}.order(many), many)
	if err != nil {
		return nil, err
	}
	if left.Done != 0 {
		return nil, fmt.Errorf("%s: %d entries are left after the sweep", d.name, left.Done)
	}
	return out, nil
}

// idle measures a pass of the sweep over entries of which none is due. The wheel looks at each in
// 32 s; the others look at all every two seconds, as an end has to be exact to that.
func (t *table) idle(entries string) ([]figure, error) {
	every := max(t.looksEvery, 2_000_000_000)
	s, err := t.pass(now() + t.looksEvery)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"sweep of " + entries + ", none due", "ms", float64(s.total) / 1e6},
		{"sweep of " + entries + ", share of a CPU", "%", 100 * float64(s.total) / float64(every)},
		{"longest callback, " + entries + ", none due", "us", float64(s.longest) / 1e3},
	}, nil
}

// A sweeping is a pass over the table: all its time, and the longest callback [ns].
type sweeping struct {
	total, longest uint64
	callbacks      int
}

func (t *table) pass(at uint64) (sweeping, error) {
	var s sweeping
	for s.callbacks < longest {
		q := request{Count: budget, Now: at}
		if err := t.run("sweep", 0, &q); err != nil {
			return s, err
		}
		s.callbacks++
		s.total += q.NS
		s.longest = max(s.longest, q.NS)
		if q.Failed == 0 { // more
			return s, nil
		}
	}
	return s, fmt.Errorf("%s: a pass of the sweep has no end", t.name)
}

// together has two CPUs open at once: what both do in a second relative to one CPU.
func together(d design, object string) (out []figure, err error) {
	cpus := min(2, runtime.NumCPU())
	const each = 1 << 18
	one, _, err := openOn(d, object, 1, each, false)
	if err != nil {
		return nil, err
	}
	both, _, err := openOn(d, object, cpus, each, false)
	if err != nil {
		return nil, err
	}
	out = append(out, figure{"two CPUs open, to one", "times", both / one})
	same, won, err := openOn(d, object, cpus, each, true)
	if err != nil {
		return nil, err
	}
	if won != each && !d.evicts {
		return nil, fmt.Errorf("%s: %d flows were opened %d times by two CPUs", d.name, each, won)
	}
	return append(out, figure{"two CPUs open the same flows, to one", "times", same / one}), nil
}

// openOn opens flows on several CPUs at once: in a nanosecond, and how many in all.
func openOn(d design, object string, cpus, each int, same bool) (rate float64, won uint64, err error) {
	t, err := load(d, object, 2*each+each/8)
	if err != nil {
		return 0, 0, err
	}
	defer t.Close()
	var wg sync.WaitGroup
	sums, errs := make([]request, cpus), make([]error, cpus)
	for cpu := range cpus {
		wg.Go(func() {
			release, err := bind(cpu)
			if err != nil {
				errs[cpu] = err
				return
			}
			defer release()
			q := sequence(cpu * each)
			if same {
				q = sequence(0)
			}
			q.Now, q.Timeout = now(), 10*minute
			sums[cpu], errs[cpu] = t.each("open", cpu, q, each)
		})
	}
	wg.Wait()
	for cpu, s := range sums {
		if errs[cpu] != nil {
			return 0, 0, errs[cpu]
		}
		rate += float64(each) / float64(s.NS)
		won += s.Done
	}
	return rate, won, nil
}
