// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Scheduler describes a scheduler by what can be said without the data plane.
// Its rule is bpf/sched/NAME.h; the maps it has are in internal/director.
type Scheduler struct {
	Name   string
	Number uint32 // in the kernel's tables: that of bpf/sched/list.h
	// Flags are the names that it has for flags of ipvsadm's option -b. One
	// without names of its own takes flag-1 to flag-3.
	Flags []SchedulerFlag
	// ByClient is true of those that choose by the client's address.
	ByClient bool
}

// SchedulerFlag is a scheduler's name for a flag.
type SchedulerFlag struct {
	Name string
	Bit  ServiceFlags
}

var schedulers = []Scheduler{
	{Name: "rr", Number: 1},
	{Name: "wrr", Number: 2},
	{Name: "lc", Number: 3},
	{Name: "wlc", Number: 4},
	{Name: "lblc", Number: 5},
	{Name: "lblcr", Number: 6},
	{Name: "dh", Number: 7},
	{Name: "sh", Number: 8, ByClient: true, Flags: []SchedulerFlag{{"sh-fallback", SchedFlag1}, {"sh-port", SchedFlag2}}},
	{Name: "sed", Number: 9},
	{Name: "nq", Number: 10},
	{Name: "fo", Number: 11},
	{Name: "ovf", Number: 12},
	{Name: "mh", Number: 13, ByClient: true, Flags: []SchedulerFlag{{"mh-fallback", SchedFlag1}, {"mh-port", SchedFlag2}}},
	{Name: "twos", Number: 14},
}

// Schedulers are all schedulers, in order of their numbers.
func Schedulers() []Scheduler { return slices.Clone(schedulers) }

// SchedulerNamed finds a scheduler; ok is false if there is none of that name.
func SchedulerNamed(name string) (s Scheduler, ok bool) {
	return findScheduler(func(s Scheduler) bool { return s.Name == name })
}

// SchedulerNumbered finds a scheduler by its number in the kernel's tables.
func SchedulerNumbered(number uint32) (s Scheduler, ok bool) {
	return findScheduler(func(s Scheduler) bool { return s.Number == number })
}

func findScheduler(is func(Scheduler) bool) (Scheduler, bool) {
	if i := slices.IndexFunc(schedulers, is); i >= 0 {
		return schedulers[i], true
	}
	return Scheduler{}, false
}

// SchedulerNames are the names of all schedulers, sorted.
func SchedulerNames() []string {
	names := make([]string, len(schedulers))
	for i, s := range schedulers {
		names[i] = s.Name
	}
	slices.Sort(names)
	return names
}
