// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"net/netip"
	"strconv"
	"strings"

	"imbang/internal/model"
)

// cSpace are the characters C's isspace accepts.
const cSpace = " \t\n\v\f\r"

// numberPrefix splits off what C's strtol would read with base 10: leading
// white space, a sign and digits. ok is false without digits; a number beyond
// 64 bits comes back as the nearest that fits, with fits false.
func numberPrefix(s string) (n int64, rest string, ok, fits bool) {
	s = strings.TrimLeft(s, cSpace)
	end := 0
	if end < len(s) && (s[end] == '+' || s[end] == '-') {
		end++
	}
	digits := end
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == digits {
		return 0, s, false, true
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	return n, s[end:], true, err == nil
}

// parseNumber reads a whole decimal number between low and high.
func parseNumber(s string, low, high int64) (int64, bool) {
	n, rest, ok, fits := numberPrefix(s)
	if !ok || !fits || rest != "" || n < low || n > high {
		return 0, false
	}
	return n, true
}

// atoi is C's: what does not look like a number is 0, and what follows one is
// ignored. ipvsadm reads IPv6 netmasks with it.
func atoi(s string) int32 {
	n, _, _, _ := numberPrefix(s)
	return int32(n)
}

// parseTimeout reads a number of seconds, at least low.
func parseTimeout(s string, low int64) (int64, *exit) {
	n, ok := parseNumber(s, low, maxTimeout)
	if !ok {
		return 0, fail("invalid timeout value `%s' specified", s)
	}
	return n, nil
}

// numberInto reads a number into a field, and refuses others with a complaint.
func numberInto[T uint8 | uint16 | int](low, high int64, complaint string, field func(*parser) *T) func(*parser, string) *exit {
	return func(p *parser, v string) *exit {
		n, ok := parseNumber(v, low, high)
		if !ok {
			return fail("%s", complaint)
		}
		*field(p) = T(n)
		return nil
	}
}

func setMcastInterface(p *parser, v string) *exit { p.daemon.Interface = v; return nil }

func setMcastGroup(p *parser, v string) *exit {
	family := "IPv4"
	if strings.Contains(v, ":") {
		family = "IPv6"
	}
	a, err := netip.ParseAddr(v)
	if err != nil || !a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
		return fail("invalid %s mcast-group `%s'", family, v)
	}
	p.daemon.Group = a
	return nil
}

// schedFlag is a name for one of the three flags; sched says which scheduler
// knows it by that name, and is empty for the names every scheduler takes.
type schedFlag struct {
	name  string
	bit   model.ServiceFlags
	sched string
}

// schedFlags lists the flags in the order listings have them.
var schedFlags = func() (all []schedFlag) {
	for _, s := range model.Schedulers() {
		for _, f := range s.Flags {
			all = append(all, schedFlag{f.Name, f.Bit, s.Name})
		}
	}
	return append(all, schedFlag{"flag-1", model.SchedFlag1, ""},
		schedFlag{"flag-2", model.SchedFlag2, ""}, schedFlag{"flag-3", model.SchedFlag3, ""})
}()

// parseSchedFlags reads the value of -b for a scheduler.
func parseSchedFlags(sched, list string) (flags model.ServiceFlags, stop *exit) {
	for name := range strings.SplitSeq(list, ",") {
		if name == "" {
			continue
		}
		flag := findSchedFlag(name)
		switch {
		case flag == nil:
			return 0, fail("invalid scheduler flag `%s'", name)
		case flag.sched != "" && flag.sched != sched:
			return 0, fail("incompatible scheduler flag `%s'", name)
		}
		flags |= flag.bit
	}
	return flags, nil
}

func findSchedFlag(name string) *schedFlag {
	for i := range schedFlags {
		if schedFlags[i].name == name {
			return &schedFlags[i]
		}
	}
	return nil
}

// formatSchedFlags names the flags of a service, separated by commas. A
// scheduler with names of its own has no others, so flag-3 of sh is not shown.
func formatSchedFlags(sched string, flags model.ServiceFlags) string {
	named := ""
	for _, f := range schedFlags {
		if f.sched == sched {
			named = sched
		}
	}
	var out []string
	for _, f := range schedFlags {
		if f.sched == named && flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return strings.Join(out, ",")
}
