// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// recordReadings writes the readings of a dump.
func recordReadings(t *testing.T, cases []judgedCase) {
	f, err := os.Open(*dumpName)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := make([]reading, len(cases))
	var of reading
	virtual := map[string]reading{} // by the address, as checkers name it
	number, checks := -1, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if m := dumped(line, `VirtualHost = case-(\d+)`); m != nil {
			if number, err = strconv.Atoi(m[0]); err != nil || number >= len(all) {
				t.Fatal(line)
			}
			all[number] = maps.Clone(of)
			of = all[number]
			virtual[of["name"]] = of
			delete(of, "name")
			continue
		}
		if of == nil {
			of = reading{}
		}
		switch m := dumped(line, ` VS VIP = (\S+), VPORT = (\d+)`, ` VS FWMARK = (\d+)`, ` (\S+|FWM \d+) -> (\S+)`); {
		case m == nil:
			dumpLine(of, line, checks)
		case strings.HasPrefix(line, " VS VIP"):
			of = reading{"virtual": m[0] + " " + m[1], "name": m[0] + " " + m[1]}
		case strings.HasPrefix(line, " VS FWMARK"):
			of = reading{"virtual": "mark " + m[0], "name": "FWM " + m[0]}
		default:
			key := checkerOwner(m[0])
			if virtual[key] == nil {
				t.Fatalf("a checker of no virtual server: %s", line)
			}
			if of = virtual[key]; of["check0 interval"] == "" {
				checks = 0
			} else {
				checks = 1
			}
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# keepalived 2.2.7's readings of the cases of TestKeepalivedValues, which says how they are recorded.\n"+
		"# A line has what differs from the one before. Keepalived leaves out a case of null.\n")
	before := reading{}
	for i, c := range cases {
		if all[i] == nil {
			fmt.Fprintf(&out, "%s\tnull\n", c.id)
			continue
		}
		usual(all[i], i)
		fmt.Fprintf(&out, "%s\t%s\n", c.id, difference(before, all[i]))
		before = all[i]
	}
	if err := os.WriteFile(readingsFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dumped are the groups of the first pattern that a line has as a whole.
func dumped(line string, patterns ...string) []string {
	for _, p := range patterns {
		if m := regexp.MustCompile(`^\s*` + strings.TrimLeft(p, " ") + `$`).FindStringSubmatch(line); m != nil {
			return m[1:]
		}
	}
	return nil
}

// checkerOwner is the key of a virtual server as checkers name it: [10.1.0.1]:tcp:80.
func checkerOwner(name string) string {
	address, rest, bracket := strings.Cut(strings.TrimPrefix(name, "["), "]:")
	if !bracket {
		return name
	}
	return address + " " + rest[strings.IndexByte(rest, ':')+1:]
}

// dumpLine takes in a line of a virtual server, a real server or a checker.
func dumpLine(r reading, line string, check int) {
	if m := dumped(line, "Inhibit on failure is (ON|OFF)"); m != nil && r["server"] != "" {
		r["inhibit"] = strconv.FormatBool(m[0] == "ON")
	}
	name, value, is := strings.Cut(strings.TrimSpace(line), " = ")
	if !is {
		return
	}
	switch name {
	case "lvs_sched":
		r["scheduler"] = value
	case "protocol":
		if value != "none" {
			r["protocol"] = value
		}
	case "quorum":
		if m := dumped(line, `quorum = (\d+), hysteresis = (\d+)`); m != nil {
			r["quorum"], r["hysteresis"] = m[0], m[1]
		}
	case "persistence timeout":
		r["persistence"] = value
	case "persistence granularity":
		r["netmask"] = value
		if bits, ok := maskLength(value); ok {
			r["netmask"] = strconv.Itoa(bits)
		}
		if r["netmask"] == "32" {
			delete(r, "netmask")
		}
	case "RIP":
		if m := dumped(line, `RIP = (\S+), RPORT = (\d+), WEIGHT = (\d+) EFF WEIGHT = \d+`); m != nil {
			port, _ := strconv.ParseUint(m[1], 10, 16)
			a, _ := netip.ParseAddr(m[0])
			r["server"], r["weight"] = netip.AddrPortFrom(a, uint16(port)).String(), m[2]
		}
	case "forwarding method":
		if method, _, _ := strings.Cut(value, ","); r["server"] != "" && r["forward"] == "" {
			r["forward"] = method
		}
	case "connection limit range":
		low, high, _ := strings.Cut(value, " -> ")
		r["thresholds"] = low + "-" + high
	default:
		dumpCheckLine(r, name, value, check)
	}
}

// dumpCheckLine takes in a value of a checker; its times have their unit.
func dumpCheckLine(r reading, name, value string, check int) {
	set := func(name, value string) { r[fmt.Sprintf("check%d %s", check, name)] = value }
	us := func() string { return strings.TrimSuffix(value, " us") }
	switch name {
	case "Delay loop":
		if strings.HasSuffix(value, " us") { // of a checker
			set("interval", us())
		}
	case "Alpha":
		set("alpha", strconv.FormatBool(value == "yes"))
	case "Warmup":
		if strings.HasSuffix(value, " us") {
			set("warmup", us())
		}
	case "Retries":
		set("retries", value)
	case "Delay before retry":
		set("retry after", us())
	case "Timeout":
		if d, err := time.ParseDuration(value + "s"); err == nil {
			set("timeout", strconv.FormatInt(d.Microseconds(), 10))
		}
	case "timeout": // of MISC_CHECK; 0 is until the next check
		if seconds, _ := strconv.Atoi(value); seconds > 0 {
			set("timeout", strconv.Itoa(seconds*1e6))
		} else {
			set("timeout", r[fmt.Sprintf("check%d interval", check)])
		}
	case "Dest":
		set("port", value[strings.LastIndexByte(value, ':')+1:])
	case "Keepalive method":
		if value == "PING_CHECK" {
			delete(r, fmt.Sprintf("check%d port", check))
		}
	}
}
