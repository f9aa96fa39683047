// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"imbang/internal/director"
	"imbang/internal/testenv"
)

// notYet are the scenarios that imbang does not play as Linux does, with the
// reason. One that does fails the test: it has to leave the list.
var notYet = map[string]string{
	"close-reuse-threshold-ipv6": "the client's kernel has the director's answer before connect() is done, and throws it away",

	"director-as-server-udp-ipv6": lostError6,

	"drop-packet-automatic": noFreeMemory,
	"secure-tcp-automatic":  noFreeMemory,

	"sip-out-then-flow": "two servers that send first to one client's port have a connection each in Linux; here the later one replaces the earlier",
}

const (
	lostError6   = "Linux 6.1.176 loses the ICMPv6 errors that it would translate (repaired in 6.1.187), and imbang tells the client"
	noFreeMemory = "automatic defences go by the room for connections, not by free memory (amemthresh)"
)

// atOnce is how many clusters play at the same time. A scenario waits more
// than it works, but its clients give up after some time.
const atOnce = 6

// The recorded scenarios of Linux's IPVS, each played on a cluster of its own.
func TestRecordings(t *testing.T) {
	testenv.Root(t)
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	t.Cleanup(func() { nothingLeft(t) })
	slots := make(chan struct{}, atOnce)
	seen := map[string]bool{}
	for _, file := range files {
		recordings, err := Read(file)
		if err != nil {
			t.Error(err)
		}
		for _, r := range recordings {
			seen[r.Scenario.Name] = true
			t.Run(r.Scenario.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				playIn(t, r, director.ModeTC)
			})
		}
	}
	for name := range notYet {
		if !seen[name] {
			t.Errorf("%s is in notYet, but there is no such recording", name)
		}
	}
}

// tries is for machines that are too slow for a scenario's timeouts of a
// second and for what is sent again: emulated ones.
var tries = flag.Int("tries", 1, "how often a scenario may be played until it comes out as Linux's")

// What each kind of connection, answer and refusal comes to, with XDP in front.
// imbang conform --mode xdp plays them all.
func TestRecordingsInXDP(t *testing.T) {
	testenv.Root(t)
	t.Cleanup(func() { nothingLeft(t) })
	slots := make(chan struct{}, atOnce)
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
				slots <- struct{}{}
				defer func() { <-slots }()
				playIn(t, recordings[0], mode)
			})
		}
	}
}

func playIn(t *testing.T, r Recording, mode director.Mode) {
	diff, err := Play(t.Context(), r, mode, Ipvsadm)
	for n := 1; n < *tries && diff != nil; n++ {
		t.Logf("played again: %v", diff)
		diff, err = Play(t.Context(), r, mode, Ipvsadm)
	}
	if err != nil && !errors.Is(err, ErrCannotPlay) {
		t.Fatal(err)
	}
	reason, expected := notYet[r.Scenario.Name]
	switch same := diff == nil && err == nil; {
	case same && expected:
		t.Errorf("as Linux, though %q: take it out of notYet", reason)
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
