// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/bpfobj"
)

// Filter says which events a tracer gets. The zero value selects new
// connections, what was refused or dropped, and what was passed to the stack although it
// was for a virtual service.
type Filter struct {
	Client  netip.Prefix   // not valid: any
	Virtual netip.AddrPort // the service's address; port 0: any; not valid: any
	Mark    uint32         // of a fwmark service; 0: any
	Server  netip.Addr     // of the connection; not valid: any
	// Verdicts (pass, refused, drop) and single reasons. With some only those
	// are told of, and of the packets of services as of any others.
	Reasons []string
	New     bool // new connections; without it and without reasons, all news
	States  bool // changes of state, too
}

// ReasonNames are what Filter.Reasons may have: verdicts, and reasons with
// hyphens between the words.
func ReasonNames() []string {
	var verdicts, reasons []string
	for r := range bpfobj.LbReasonREASON_COUNT {
		verdict, reason := reasonWords(r)
		if !slices.Contains(verdicts, verdict) {
			verdicts = append(verdicts, verdict)
		}
		reasons = append(reasons, strings.ReplaceAll(reason, " ", "-"))
	}
	slices.Sort(reasons)
	return append(verdicts, slices.Compact(reasons)...)
}

// Reason is why a packet was not forwarded. The same words may stand with several
// verdicts.
type Reason struct{ Verdict, Reason string }

// Reasons lists all of them.
func Reasons() []Reason {
	all := make([]Reason, bpfobj.LbReasonREASON_COUNT)
	for r := range all {
		all[r].Verdict, all[r].Reason = reasonWords(bpfobj.LbReason(r))
	}
	return all
}

// reasonBits are the reasons of a name; 0 if there are none.
func reasonBits(name string) (bits uint64) {
	name = strings.NewReplacer("-", " ", "_", " ").Replace(strings.ToLower(name))
	for r := range bpfobj.LbReasonREASON_COUNT {
		if verdict, reason := reasonWords(r); name == verdict || name == reason {
			bits |= 1 << r
		}
	}
	return bits
}

// CheckReason refuses what is no reason's name.
func CheckReason(name string) error {
	if reasonBits(name) == 0 {
		return fmt.Errorf("unknown reason %q (%s)", name, strings.Join(ReasonNames(), ", "))
	}
	return nil
}

// tracer is the filter as the kernel has it.
func (f Filter) tracer() (bpfobj.LbTracer, error) {
	t := bpfobj.LbTracer{Fwmark: f.Mark, Owner: rand.Uint32()}
	if err := f.news(&t); err != nil {
		return t, err
	}
	if f.Client.IsValid() {
		bits := f.Client.Bits()
		if f.Client.Addr().Is4() {
			bits += 96
		}
		t.Client, t.ClientMask = toAddress(f.Client.Masked().Addr()), prefixMask(bits)
	}
	if f.Virtual.IsValid() {
		t.Virtual, t.Port = toAddress(f.Virtual.Addr()), swapPort(f.Virtual.Port())
	}
	if f.Server.IsValid() {
		t.Server = toAddress(f.Server)
	}
	return t, nil
}

func (f Filter) news(t *bpfobj.LbTracer) error {
	for _, name := range f.Reasons {
		if err := CheckReason(name); err != nil {
			return err
		}
		t.Reasons |= reasonBits(name)
	}
	if len(f.Reasons) == 0 && !f.New {
		t.Reasons = reasonBits("refused") | reasonBits("drop") | 1<<bpfobj.LbReasonREASON_PASS_FRAGMENT
		t.ReasonsServices = ^uint64(0)
		t.News = uint8(bpfobj.LbNewsNEWS_OPENED)
	}
	if f.New {
		t.News |= uint8(bpfobj.LbNewsNEWS_OPENED)
	}
	if f.States {
		t.News |= uint8(bpfobj.LbNewsNEWS_STATE)
	}
	return nil
}

// prefixMask has so many leading ones.
func prefixMask(bits int) bpfobj.LbAddress {
	var b [16]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	var mask bpfobj.LbAddress
	for i := range mask.Word {
		mask.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return mask
}
