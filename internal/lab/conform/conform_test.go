// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/testenv"
)

// atOnce is how many clusters play at the same time, unless -test.parallel says
// otherwise. A scenario waits more than it works, but its clients give up after
// some time.
const atOnce = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// mode is how the director is attached for all scenarios.
var mode = flag.String("mode", string(director.ModeTC), "tc, xdp or xdp-generic")

// The recorded scenarios of Linux's IPVS, each played on a cluster of its own.
func TestRecordings(t *testing.T) {
	testenv.Root(t)
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	t.Cleanup(func() { nothingLeft(t) })
	var all []Recording
	seen := map[string]bool{}
	for _, file := range files {
		recordings, err := Read(file)
		if err != nil {
			t.Error(err)
		}
		all = append(all, recordings...)
	}
	// The longest waits first, so that no scenario is left to wait alone.
	slices.SortStableFunc(all, func(a, b Recording) int { return cmp.Compare(sleeps(b), sleeps(a)) })
	for _, r := range all {
		seen[r.Scenario.Name] = true
		t.Run(r.Scenario.Name, func(t *testing.T) {
			t.Parallel()
			playIn(t, r, director.Mode(*mode))
		})
	}
	for name := range NotYet {
		if !seen[name] {
			t.Errorf("%s is in NotYet, but there is no such recording", name)
		}
	}
}

// sleeps are the seconds that a scenario sleeps.
func sleeps(r Recording) (sum float64) {
	for _, op := range r.Scenario.Ops {
		var kind string
		var seconds float64
		if json.Unmarshal(op[0], &kind) == nil && kind == "sleep" && args(op, &seconds) == nil {
			sum += seconds
		}
	}
	return sum
}

// tries is for machines that are too slow for a scenario's timeouts of a
// second and for what is sent again: emulated ones.
var tries = flag.Int("tries", 1, "how often a scenario may be played until it comes out as Linux's")

// What each kind of connection, answer and refusal comes to, with XDP in front.
// imbang conform --mode xdp plays them all.
func TestRecordingsInXDP(t *testing.T) {
	testenv.Root(t)
	t.Cleanup(func() { nothingLeft(t) })
	for _, name := range []string{
		"both-families-one-port", "close-timeout", "direct-and-masquerade", "direct-and-masquerade-ipv6", "drop-packet-all-services",
		"ftp-plain", "local-server-masquerade", "mark-both-families", "no-servers-udp-ipv6", "secure-tcp-nat",
		"sip-call-id-ports", "sip-ipv6", "sip-none", "sip-ops", "sip-out", "sip-out-mask", "sip-out-without-persistence",
		"template-timeout-stays", "tunnel-and-masquerade", "udp-port-zero-and-own",
	} {
		files, err := filepath.Glob(filepath.Join("testdata/*", name+".json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %d files, %v", name, len(files), err)
		}
		recordings, err := Read(files[0])
		if err != nil || len(recordings) != 1 {
			t.Fatalf("%s: %d recordings, %v", name, len(recordings), err)
		}
		for _, mode := range []director.Mode{director.ModeXDP, director.ModeXDPGeneric} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				playIn(t, recordings[0], mode)
			})
		}
	}
}

// stalled is from which stall on a busy machine may have let a timeout of a second pass, or most of
// one, between two operations: a difference counts then when it comes out three times.
const stalled = 50 * time.Millisecond

func playIn(t *testing.T, r Recording, mode director.Mode) {
	stalls := testenv.WatchStalls(t)
	diff, err := Play(t.Context(), r, mode, Ipvsadm)
	for n := 1; diff != nil && (n < *tries || n < 3 && stalls.Longest() > stalled); n++ {
		t.Logf("played again: %v", diff)
		diff, err = Play(t.Context(), r, mode, Ipvsadm)
	}
	if err != nil && !errors.Is(err, ErrCannotPlay) {
		t.Fatal(err)
	}
	reason, expected := NotYet[r.Scenario.Name]
	switch same := diff == nil && err == nil; {
	case same && expected:
		t.Errorf("as Linux, though %q: take it out of NotYet", reason)
	case !same && !expected && err != nil:
		t.Error(err)
	case !same && !expected:
		t.Error(diff)
	}
}

// nothingLeft looks for namespaces of this process.
func nothingLeft(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(fmt.Sprintf("/run/netns/%s-%d-*", prefix, os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
