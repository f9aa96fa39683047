// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// More virtual addresses of the fuzzer's world.
const (
	vipOwn = 40 // port 80 is the director's own, by an address of its own
	vipFTP = 41 // port 21, persistently, of server 0
)

// fuzzClients are so many that each script has clients of its own.
var fuzzClients = netip.MustParsePrefix("10.128.0.0/9")

// fuzzWorld is a world for scripts of packets, one after the other.
type fuzzWorld struct {
	*rig
	names    []string // of reasons
	counted  []uint64 // by reason
	behind   map[netip.Addr][]model.Server
	settings bpfobj.LbSettings
	number   int // of scripts
	packets  int

	asked map[netip.Addr]bool // where packets with a mark went
	met   map[string]int      // reasons, and ways in which packets went on
}

// FuzzPackets sends packets of every kind, and such as are none, through the
// loaded programs, and judges what becomes of each (fuzz_judge_test.go).
func FuzzPackets(f *testing.F) {
	w := newFuzzWorld(f)
	w.seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		w.play(t, data)
		// Ten seconds without an answer are a deadlock to the fuzzer.
		if w.number%50_000 == 0 && w.settled(t, 5*time.Second) {
			w.wantNothingLeft(t)
		}
	})
}

func newFuzzWorld(t testing.TB) *fuzzWorld {
	w := &fuzzWorld{
		rig:    newWorld(t, Sizes{Services: 256, Servers: 1024, Connections: 1 << 17}),
		behind: map[netip.Addr][]model.Server{}, asked: map[netip.Addr]bool{}, met: map[string]int{},
	}
	for _, f := range families {
		own := netip.MustParsePrefix(f.serverLink).Addr()
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			local := f.real(0, 80)
			local.Forward = model.LocalNode
			w.serve(service(p, at(f.vip(vipOwn), 80), "rr"), model.Server{Addr: own, Port: 80, Weight: 1}, local)
		}
		w.serve(persistent(service(model.TCP, at(f.vip(vipFTP), 21), "rr")), f.real(0, 21))
	}
	w.must(w.ns.AddRoutes(host.Route{Dst: fuzzClients, Via: netip.MustParseAddr(ipv4.router)}))
	w.must(w.ns.Do(w.findSources)) // as the setting hairpin does
	w.learn()
	w.shorten()
	return w
}

// learn reads what judging and counting need to know.
func (w *fuzzWorld) learn() {
	w.Helper()
	services, err := w.Services()
	w.must(err)
	for _, s := range services {
		for _, server := range s.Servers {
			w.behind[s.Key.Addr] = append(w.behind[s.Key.Addr], server.Server)
		}
	}
	for r := range bpfobj.LbReasonREASON_COUNT {
		verdict, reason := reasonWords(r)
		w.names = append(w.names, verdict+" "+reason)
	}
	w.counted = make([]uint64, len(w.names))
	_, err = w.newlyCounted()
	w.must(err)
}

// shorten lets everything expire soon, so that the tables never fill:
// connections in a second, templates after them.
func (w *fuzzWorld) shorten() {
	w.Helper()
	var err error
	w.settings, err = w.config()
	w.must(err)
	for i, t := range w.settings.Timeout {
		w.settings.Timeout[i] = min(t, uint64(time.Second))
	}
	services, err := w.Services()
	w.must(err)
	for _, s := range services {
		if s.Flags&model.Persistent != 0 {
			s.Timeout = 3 * time.Second
			w.must(w.EditService(s.Service))
		}
	}
}

// newlyCounted are the reasons that were counted since it was called last.
func (w *fuzzWorld) newlyCounted() (map[string]uint64, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	keys, perCPU := make([]uint32, len(w.names)), make([]uint64, len(w.names)*cpus)
	var cursor ebpf.MapBatchCursor
	if n, err := w.maps.Reasons.BatchLookup(&cursor, keys, perCPU, nil); n != len(keys) {
		return nil, fmt.Errorf("read reasons: %d of %d: %w", n, len(keys), err)
	}
	grown := map[string]uint64{}
	for i := range w.names {
		var sum uint64
		for _, n := range perCPU[i*cpus : (i+1)*cpus] {
			sum += n
		}
		if sum != w.counted[i] {
			grown[w.names[i]] = sum - w.counted[i]
			w.counted[i] = sum
		}
	}
	return grown, nil
}

// play sends what the bytes say, and judges it.
func (w *fuzzWorld) play(t *testing.T, data []byte) {
	s := &script{source: newSource(data), number: w.number}
	w.number++
	err := w.ns.Do(func() error {
		if err := w.adjust(s); err != nil {
			return err
		}
		// Scripts come faster than the director answers.
		if err := w.maps.Allowances.Put(bpfobj.LbAddress{}, bpfobj.LbAllowance{}); err != nil {
			return err
		}
		for range 1 + s.n(32) {
			if err := w.put(s, s.next()); err != nil {
				return err
			}
		}
		return w.sane()
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
}

// adjust chooses the settings for a script.
func (w *fuzzWorld) adjust(s *script) error {
	set := w.settings
	bits := s.byte()
	bit := func(n int) uint32 { return uint32(bits) >> n & 1 }
	set.Hairpin, set.SloppyTcp, set.SloppySctp = bit(0), bit(1)&bit(2), bit(1)&bit(2)
	set.ExpireNodestConn, set.ConnReuseMode = bit(3), uint32(bits)>>4&3
	set.ExpireQuiescentTemplate, set.HashFallback = bit(6), bit(7)
	return putConfig(w.maps.Config, set)
}

// put sends one packet and judges what becomes of it. If the hardware had
// summed it up, that sum is judged too.
func (w *fuzzWorld) put(s *script, in sent) error {
	p := passed{sent: in}
	if summing() && s.once(4) && in.context.GSOSize == 0 {
		p.flags = checksumComplete
	}
	program := w.progs.LbClient
	switch {
	case in.fromHere:
		program = w.progs.LbLocal
	case in.fromServer:
		program = w.progs.LbServer
	}
	if n := len(in.frame); in.context.Mark != 0 && (n >= 14+40 || n >= 14+20 && in.frame[12] != 0x86) {
		_, dst := addresses(in.frame)
		w.asked[dst] = true
	}
	var summed error
	p.got, summed = run(program, w.arriving(program, in.context), in.frame, p.flags)
	counted, err := w.newlyCounted()
	if err == nil && errors.Is(summed, errSum) {
		// Nothing comes back then.
		refused := refusedPart(in.frame, counted)
		p.flags = 0
		p.got, err = run(program, w.arriving(program, in.context), in.frame, 0)
		if err == nil {
			counted, err = w.newlyCounted()
		}
		// What is cut has no sum any more, and likewise.
		if refused || toldPart(p, counted) || p.got.verdict == redirect && w.judgeCut(p.frame, p.got.frame) == nil {
			summed = nil
		}
	}
	for reason := range counted {
		w.met[reason]++
	}
	s.before = append(s.before, p)
	w.packets++
	return errors.Join(err, summed, w.judge(p, counted))
}

// refusedPart reports whether a packet was answered by an ICMP error that
// quotes a part of the frame: the kernel then forgets the hardware's sum, but
// BPF_PROG_TEST_RUN compares it all the same.
func refusedPart(frame []byte, counted map[string]uint64) bool {
	reason, _ := onlyReason(counted)
	quote := ipv4.refusals().quote
	if frame[12] == 0x86 {
		quote = ipv6.refusals().quote
	}
	return strings.HasPrefix(reason, "refused") && (len(testenv.Unpadded(frame)) < len(frame) || len(frame)-14 > quote)
}

// toldPart reports the same of an error that was made of another, or would
// have been if its receiver had not been told of so many.
func toldPart(p passed, counted map[string]uint64) bool {
	reason, _ := onlyReason(counted)
	return reason == "drop rate limit" || reason == "drop answer limit" || p.got.verdict == redirect && testenv.ToldOn(p.frame, p.got.frame) == nil && cut(p.frame, p.got)
}

// sane expects counts of connections that can be.
func (w *fuzzWorld) sane() error {
	loads, err := lookupAll[bpfobj.LbLoad](w.maps.Loads, w.settings.Servers)
	if err != nil {
		return err
	}
	for id, l := range loads {
		if most := uint32(1 << 18); l.Active > most || l.Inactive > most || l.Persistent > most {
			return fmt.Errorf("server %d has %+v", id, l)
		}
	}
	return nil
}

// String lists the packets, so that they can be played again.
func (s *script) String() string {
	var b strings.Builder
	for i, p := range s.before {
		fmt.Fprintf(&b, "%d: server's side %t, director's %t, mark %d, GSO %d of %d, flags %d: %x\n   %s: %x\n", i, p.fromServer, p.fromHere,
			p.context.Mark, p.context.GSOSegs, p.context.GSOSize, p.flags, p.frame, p.got, p.got.frame)
	}
	return b.String()
}

// settled waits for every connection to end, and reports whether they did. A
// template that waits for a connection takes a minute.
func (w *fuzzWorld) settled(t testing.TB, limit time.Duration) bool {
	r := w.in(t)
	for deadline := time.Now().Add(limit); r.conns() != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// wantNothingLeft expects no server to have connections when there are none, and
// nothing to be left of them.
func (w *fuzzWorld) wantNothingLeft(t testing.TB) {
	t.Helper()
	r := w.in(t)
	if n := r.linesInUse(); n != 0 {
		t.Errorf("without an entry %d lines of the connection table are in use", n)
	}
	loads, err := lookupAll[bpfobj.LbLoad](r.maps.Loads, w.settings.Servers)
	r.must(err)
	for id, l := range loads {
		if l != (bpfobj.LbLoad{Position: l.Position, Weight: l.Weight}) { // which stays
			t.Errorf("after %d scripts, without a connection, server %d has %+v", w.number, id, l)
		}
	}
}
