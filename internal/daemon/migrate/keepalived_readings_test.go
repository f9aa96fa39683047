// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	checker "imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/model"
)

var (
	judgedFileName = flag.String("judged-file", "", "write the keepalived.conf of all cases, for a machine with ip_vs")
	dumpName       = flag.String("dump", "", "with -update: what keepalived wrote there on SIGUSR1")
)

// A reading is what a case became: values by name, times in microseconds.
type reading map[string]string

func (r reading) String() string {
	b, _ := json.Marshal(map[string]string(r)) // by name
	return string(b)
}

const readingsFile = "testdata/keepalived.readings"

// What the import makes of each value is what keepalived 2.2.7 makes of it, by its dump of
// the configuration, or it is listed at the line of the value. What keepalived complains of
// is listed, too.
//
// The dumps are recorded, because keepalived prints them on machines with ip_vs only:
//
//	go test ./internal/daemon/migrate -run TestKeepalivedValues -judged-file k.conf
//	keepalived -n -f k.conf & sleep 12; killall -USR1 keepalived   # there: writes /tmp/keepalived_check.data
//	go test ./internal/daemon/migrate -run TestKeepalivedValues -dump keepalived_check.data -update
func TestKeepalivedValues(t *testing.T) {
	cases := judgedCases()
	text, before := judgedFile(cases)
	if *judgedFileName != "" {
		if err := os.WriteFile(*judgedFileName, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if *dumpName != "" && *update {
		recordReadings(t, cases)
	}
	recorded := recordedReadings(t, cases)
	said := judge(t, text)
	for i, c := range cases {
		t.Run(c.id, func(t *testing.T) {
			got, listed := importReading(t, c.text)
			usual(got, i)
			here := listed[c.line()]
			complaints := slices.DeleteFunc(said[before[i]+c.line()], func(s string) bool { return strings.Contains(s, "is deprecated") })
			if len(complaints) > 0 && len(here) == 0 {
				t.Errorf("keepalived says %q; nothing is listed", complaints)
			}
			want := nearest(recorded[i])
			switch {
			case want == nil && got["server"] == "": // a service that keepalived leaves out refuses clients
				want = got
			case strings.HasPrefix(c.id, "fwmark ") && want["server"] != "" && !strings.HasPrefix(want["virtual"], "mark "): // mark 0
				want = nil
			}
			for name, value := range difference(want, got) {
				t.Errorf("%s: %q, keepalived %q", name, value, recorded[i][name])
			}
			different := difference(recorded[i], got)
			for name := range different {
				anywhere := !strings.HasSuffix(name, c.sets) && len(listed) > 0 // it follows from the value of the line
				if len(here) == 0 && !anywhere {
					t.Errorf("%s: %q, keepalived %q; listed is %v", name, got[name], recorded[i][name], listed)
				}
			}
			if len(different) == 0 && len(here) > 0 && len(complaints) == 0 && !strings.Contains(strings.Join(here, " "), "keepalived") {
				t.Errorf("as keepalived, and listed: %q", here)
			}
		})
	}
}

// masks are imbang's netmasks in place of keepalived's that are no prefixes; "": none.
var masks = map[string]string{"0.0.0.24": "24", "0.0.0.33": "", "255.0.255.0": "", "0.0.0.0": ""}

// nearest is the reading that imbang has in place of keepalived's: the nearest values within
// its limits.
func nearest(r reading) reading {
	if r == nil {
		return nil
	}
	near := maps.Clone(r)
	limit := func(name string, low, high int64) {
		if n, err := strconv.ParseInt(r[name], 10, 64); err == nil {
			near[name] = strconv.FormatInt(min(max(n, low), high), 10)
		}
	}
	longest := longest.Microseconds()
	for _, check := range []string{"check0 ", "check1 "} {
		limit(check+"interval", shortest.Microseconds(), longest)
		if limit(check+"timeout", 1000, longest); r[check+"timeout"] == "0" {
			near[check+"timeout"] = strconv.FormatInt((5 * time.Second).Microseconds(), 10) // the server's
		}
		interval, _ := strconv.ParseInt(near[check+"interval"], 10, 64)
		limit(check+"retry after", shortest.Microseconds(), interval) // there is a check after the interval
		limit(check+"retries", 0, mostRetries)
		limit(check+"warmup", 0, longest)
		if r[check+"warmup"] == r[check+"interval"] {
			near[check+"warmup"] = near[check+"interval"] // the default
		}
		if r[check+"retries"] == "0" {
			delete(near, check+"retry after")
		}
	}
	if low, high, are := strings.Cut(r["thresholds"], "-"); are {
		near["thresholds"] = strings.Join([]string{atMost31(low), atMost31(high)}, "-")
	}
	if r["quorum"] == "0" { // and a hysteresis below that
		near["quorum"], near["hysteresis"] = "1", "0"
	}
	if mask, odd := masks[r["netmask"]]; odd {
		near["netmask"] = mask
	}
	maps.DeleteFunc(near, func(_, value string) bool { return value == "" })
	return near
}

// atMost31 is a number that fits 31 bits.
func atMost31(text string) string {
	n, _ := strconv.ParseInt(text, 10, 64)
	return strconv.FormatInt(min(n, 1<<31-1), 10)
}

func union(a, b reading) reading {
	all := reading{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// importReading is what the import makes of a case, and what it lists, by line.
func importReading(t *testing.T, text string) (reading, map[int][]string) {
	t.Helper()
	r, err := Keepalived(t.Context(), "x", []byte(text), Source{})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[int][]string{}
	for _, l := range r.Losses {
		listed[l.Line] = append(listed[l.Line], l.Why)
	}
	c, err := config.Parse("imbang.yaml", r.YAML())
	if err != nil {
		t.Fatalf("imbang run does not take it: %v\n%s", err, r.YAML())
	}
	got := reading{}
	for _, s := range c.Services {
		serviceReading(got, &s)
	}
	return got, listed
}

var forwardNames = map[model.Forward]string{model.Masquerade: "NAT", model.Route: "DR", model.Tunnel: "TUN"}

func serviceReading(r reading, s *config.Service) {
	r["virtual"] = fmt.Sprintf("%s %d", s.Key.Addr, s.Key.Port)
	if s.Key.Mark != 0 {
		r["virtual"] = fmt.Sprintf("mark %d", s.Key.Mark)
	} else {
		r["protocol"] = strings.ToUpper(s.Key.Protocol.String())
	}
	r["scheduler"] = s.Scheduler
	r["quorum"], r["hysteresis"] = strconv.Itoa(s.Quorum), strconv.Itoa(s.Hysteresis)
	if s.Timeout > 0 {
		r["persistence"] = strconv.Itoa(int(s.Timeout.Seconds()))
	}
	if s.Netmask != model.FullMask(s.Key.Family) {
		length := int(s.Netmask)
		if s.Key.Family == model.IPv4 {
			length = bits.OnesCount32(uint32(s.Netmask))
		}
		r["netmask"] = strconv.Itoa(length)
	}
	for _, one := range s.Servers {
		r["server"] = one.AddrPort().String()
		r["weight"] = strconv.Itoa(int(one.Weight))
		r["thresholds"] = fmt.Sprintf("%d-%d", one.Lower, one.Upper)
		r["forward"] = forwardNames[one.Forward]
		r["inhibit"] = strconv.FormatBool(s.OnFailure == config.Quiesce)
		for i, ch := range one.Checks {
			checkReading(r, i, ch, one.Port)
		}
	}
}

func checkReading(r reading, i int, ch *config.Check, port uint16) {
	set := func(name string, v any) { r[fmt.Sprintf("check%d %s", i, name)] = fmt.Sprint(v) }
	set("interval", ch.Interval.Microseconds())
	set("retries", ch.Fall-1)
	if ch.Fall > 1 {
		set("retry after", ch.Fast.Microseconds())
	}
	set("warmup", ch.Spread.Microseconds())
	set("alpha", ch.Initial == checker.Down)
	set("timeout", ch.Timeout.Microseconds())
	if ch.Kind != "script" && ch.Kind != "icmp" {
		if ch.Port != 0 {
			port = ch.Port
		}
		set("port", port)
	}
}

// usual leaves out the virtual address that a case has if its line is about another thing.
func usual(r reading, i int) {
	if r["virtual"] == caseAddress(i)+" 80" {
		delete(r, "virtual")
	}
}

// difference is what changes a reading into another one: "" is a value that is not there.
func difference(from, to reading) reading {
	changed := reading{}
	for name := range union(from, to) {
		if from[name] != to[name] {
			changed[name] = to[name]
		}
	}
	return changed
}

// recordedReadings are those of keepalived.
func recordedReadings(t *testing.T, cases []judgedCase) (all []reading) {
	t.Helper()
	text, err := os.ReadFile(readingsFile)
	if err != nil {
		t.Fatal(err)
	}
	before := reading{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		id, values, _ := strings.Cut(line, "\t")
		if n := len(all); n >= len(cases) || cases[n].id != id {
			t.Fatalf("%s is no case, or another one is before it: record again", id)
		}
		var changed reading
		if err := json.Unmarshal([]byte(values), &changed); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if changed != nil {
			before = union(before, changed)
			maps.DeleteFunc(before, func(_, value string) bool { return value == "" })
			changed = before
		}
		all = append(all, changed)
	}
	if len(all) != len(cases) {
		t.Fatalf("%d readings of %d cases: record again", len(all), len(cases))
	}
	return all
}
