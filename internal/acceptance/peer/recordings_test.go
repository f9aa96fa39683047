// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"flag"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/conform"
)

var (
	every    = flag.Bool("every", false, "play every recording with every variant")
	matching = flag.String("recordings", "", "regular expression of the recordings' names")
)

// The variants of masters.
var variants = []variant{{1, "0 1"}, {1, "3 50"}, {0, "0 1"}, {0, "3 50"}}

// chosen tells whether a scenario is played with a variant: by default each with one, and
// those of IPv6, of which version 0 does not tell, with version 1.
func chosen(name string, n int) bool {
	if *every {
		return true
	}
	h := fnv.New32a()
	fmt.Fprint(h, name)
	use := int(h.Sum32()/7) % len(variants)
	if strings.HasSuffix(name, "-ipv6") {
		use %= 2
	}
	return use == n
}

// How much the times to expiry of two backups may differ: the listing's seconds, and a
// datagram's way; of different masters also what each kept its message.
const (
	sameMaster   = 2 * time.Second
	otherMasters = 5 * time.Second
)

// differ are recordings whose tables may differ, with the reason.
var differ = map[string]string{
	"mark-of-addresses-with-own-service":      markOfPackets,
	"mark-of-addresses-with-own-service-ipv6": markOfPackets,
}

const markOfPackets = "Linux tells of the mark of a connection's first packet, also if its service is by address: a backup that has a service of that mark then finds no server"

// Each recording is played at once in front of Linux and of imbang as masters. A Linux and
// an imbang listen to the former and a Linux to the latter: all three know the same.
func TestRecordings(t *testing.T) {
	needProgram(t)
	match, err := regexp.Compile(*matching)
	if err != nil {
		t.Fatal(err)
	}
	pool := withLanes(t)
	for n, v := range variants {
		for _, r := range recordings(t, func(s conform.Scenario) bool { return match.MatchString(s.Name) && chosen(s.Name, n) }) {
			if _, unlike := conform.NotYet[r.Scenario.Name]; unlike {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s", r.Scenario.Name, v), func(t *testing.T) {
				t.Parallel()
				l := <-pool
				defer func() { pool <- l }()
				// A table edit may come to one backup before a message that comes to another
				// one after it. What is wrong is wrong again.
				problems, err := l.compare(r, v)
				if err == nil && problems != nil {
					t.Logf("played again:\n%s", strings.Join(problems, "\n"))
					problems, err = l.compare(r, v)
				}
				if err != nil {
					t.Fatal(err)
				}
				switch reason := differ[r.Scenario.Name]; {
				case problems != nil && reason != "":
					t.Logf("%s:\n%s", reason, strings.Join(problems, "\n"))
				case problems != nil:
					t.Error(strings.Join(problems, "\n"))
				}
			})
		}
	}
}

func needProgram(t *testing.T) {
	t.Helper()
	if *executable == "" {
		t.Skip("needs -executable")
	}
}

// compare plays a recording and says what differs.
func (l *lane) compare(r conform.Recording, v variant) (problems []string, err error) {
	of1, of2, end, err := l.both()
	defer end()
	if err != nil {
		return nil, err
	}
	unlike, err := playAll(r, v, of1, of2)
	if err != nil {
		return nil, err
	}
	problems, err = differences(of1, of2)
	return append(unlike, problems...), err
}

// both makes the groups of Linux and of imbang as masters.
func (l *lane) both() (ofLinux, ofProgram *group, end func(), err error) {
	l.played++
	end = func() {
		for _, g := range []*group{ofLinux, ofProgram} {
			if g != nil {
				g.end()
			}
		}
	}
	if ofLinux, err = l.kernelGroup(); err != nil {
		return ofLinux, nil, end, err
	}
	if err = l.addKernel(ofLinux, 1); err != nil {
		return ofLinux, nil, end, err
	}
	if err = l.addProgram(ofLinux, "sync1"); err != nil {
		return ofLinux, nil, end, err
	}
	if ofProgram, err = l.programGroup(); err != nil {
		return ofLinux, ofProgram, end, err
	}
	if err = l.backup2On("sync2"); err == nil {
		err = l.addKernel(ofProgram, 2)
	}
	return ofLinux, ofProgram, end, err
}

// differences compares the backups of both groups.
func differences(ofLinux, ofProgram *group) ([]string, error) {
	got, err := tables(append(ofLinux.backups, ofProgram.backups...)...)
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		about("backup Linux (-) and backup imbang (+) of master Linux:", got[0].Diff(got[1], sameMaster)),
		about("backup Linux of master Linux (-) and of master imbang (+):", got[0].Diff(got[2], otherMasters))), nil
}

// about puts a heading before lines, if there are any.
func about(heading string, lines []string) []string {
	if lines == nil {
		return nil
	}
	return append([]string{heading}, lines...)
}
