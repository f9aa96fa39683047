// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"imbang/internal/testenv"
)

// mtu is that of the rig's devices.
const mtu = 1500

// judge says what is wrong with what became of a packet; `counted` are the
// reasons that were counted meanwhile. A packet is forwarded, answered by an
// ICMP error, or left alone, and of the latter two it is said why. What cannot be
// rewritten is a super-packet of no known protocol, which the kernel's helpers
// refuse.
func (w *fuzzWorld) judge(p passed, counted map[string]uint64) error {
	reason, err := onlyReason(counted)
	if err != nil {
		return err
	}
	if reason == "drop rewrite" && p.context.GSOSize == 0 {
		return errors.New("could not be rewritten")
	}
	word, _, _ := strings.Cut(reason, " ")
	switch p.got.verdict {
	case pass:
		if word != "pass" && !(p.fromHere && word == "") {
			return fmt.Errorf("passed to the stack for the reason %q", reason)
		}
		if reason == "pass local" || p.fromHere {
			return w.judgeHere(p)
		}
		if !bytes.Equal(p.frame, p.got.frame) {
			return fmt.Errorf("passed to the stack (%s), but touched: %x", reason, p.got.frame)
		}
		return nil
	case drop:
		about, _ := bothMeasured(p.frame, p.frame)
		if word != "drop" && (word != "refused" || !testenv.NoErrorAbout(about)) {
			return fmt.Errorf("dropped for the reason %q", reason)
		}
		return nil
	case redirect:
		if word == "refused" {
			return judgeRefusal(p)
		}
		if reason == "drop no neighbour" { // of a cut packet the last fragment asks
			return w.judgeCut(p.frame, p.got.frame)
		}
		if word != "" {
			return fmt.Errorf("sent on, and counted as %q", reason)
		}
		return w.judgeForwarded(p)
	}
	return errors.New(p.got.String())
}

// onlyReason is the one that was counted; "" if none was.
func onlyReason(counted map[string]uint64) (reason string, err error) {
	for r, n := range counted {
		if n != 1 || reason != "" {
			return "", fmt.Errorf("counted %v", counted)
		}
		reason = r
	}
	return reason, nil
}

// judgeRefusal is about an ICMP error. A checksum that was to be filled in
// still is; what a super-packet without a length quotes is not compared.
func judgeRefusal(p passed) error {
	var err error
	about := p.frame
	if lengthless(about) {
		about, _ = bothMeasured(about, about)
		err = testenv.CheckOwnSums(p.got.frame)
	} else {
		_, err = testenv.Refused(about, p.got.frame)
		for _, f := range families {
			// Of a reply.
			if _, other := testenv.RefusedBy(about, p.got.frame, f.own()); other == nil {
				err = nil
			}
		}
	}
	if err != nil && testenv.IsPending(about) && testenv.CheckOwnSums(about) != nil && strings.Contains(err.Error(), "wrong checksum: ICMP") {
		return nil
	}
	return err
}

// lengthless reports whether a frame's packet is too long for a length (BIG
// TCP).
func lengthless(frame []byte) bool {
	at := lengthAt(frame)
	return len(frame) >= at+2 && frame[at] == 0 && frame[at+1] == 0
}

// lengthAt is where an IP packet has its length.
func lengthAt(frame []byte) int {
	if frame[12] == 0x86 {
		return 14 + 4
	}
	return 14 + 2
}

// bothMeasured gives a super-packet a length for its judge, before and after.
func bothMeasured(in, out []byte) ([]byte, []byte) {
	if lengthless(in) && lengthless(out) {
		return measured(in), measured(out)
	}
	return in, out
}

// measured is a frame that has a length.
func measured(of []byte) []byte {
	frame, behind := bytes.Clone(of), len(of)-14
	if frame[12] == 0x86 {
		behind -= 40
	}
	return altered(frame, lengthAt(frame), uint16(behind))
}
