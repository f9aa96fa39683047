// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"imbang/internal/testenv"
)

// packetMaker sends packets from one CPU, straight into the programs.
type packetMaker struct {
	*soak
	*rand.Rand
	number int // of scripts: their clients are their own
	sent   int
}

// sendPackets sends until the run ends: connections that are opened, used and
// closed, calls, whole scripts of packets of every kind as the fuzzer makes them,
// and now and then a flood of SYNs.
func (s *soak) sendPackets(random *rand.Rand) error {
	m := &packetMaker{soak: s, Rand: random, number: int(random.Uint32() >> 11)}
	for !s.over() {
		if err := m.some(); err != nil {
			return fmt.Errorf("packet: %w", err)
		}
	}
	return nil
}

// some sends what belongs together.
func (m *packetMaker) some() error {
	m.sending.RLock()
	defer m.sending.RUnlock()
	if time.Now().UnixNano() < m.flood.Load() {
		return m.syns(256)
	}
	switch n := m.IntN(40000); {
	case n == 0 && !m.steady.Load():
		m.flood.Store(time.Now().Add(time.Duration(200+m.IntN(2000)) * time.Millisecond).UnixNano())
		return nil
	case n < 10000:
		return m.script()
	case n < 15000:
		return m.call()
	}
	return m.connection()
}

// put sends one packet.
func (m *packetMaker) put(in sent) (result, error) {
	program := m.progs.LbClient
	switch {
	case in.fromHere:
		program = m.progs.LbLocal
	case in.fromServer:
		program = m.progs.LbServer
	}
	got, err := run(program, m.arriving(program, in.context), in.frame, 0)
	if errors.Is(err, errSum) {
		err = nil
	}
	m.packets.Add(1)
	if got.verdict == redirect {
		m.redirected.Add(1)
	}
	if m.sent++; m.sent%soakBurst == 0 && *soakPace > 0 && time.Now().UnixNano() >= m.flood.Load() {
		time.Sleep(*soakPace)
	}
	return got, err
}

// script is one of the fuzzer's.
func (m *packetMaker) script() error {
	seed := binary.NativeEndian.AppendUint64(nil, m.Uint64())
	m.number = (m.number + 1) % (1 << 21)
	sc := &script{source: newSource(seed), number: m.number}
	for range 1 + sc.n(32) {
		p := passed{sent: sc.next()}
		var err error
		if p.got, err = m.put(p.sent); err != nil {
			return err
		}
		sc.before = append(sc.before, p)
	}
	return nil
}

// address is a client of packets alone.
func (m *packetMaker) address(f family) string {
	if f.number == ipv4.number {
		return fmt.Sprintf("10.10.%d.%d", 64+m.IntN(128), 1+m.IntN(250))
	}
	return fmt.Sprintf("fd00:10:%x::%x", 1+m.IntN(100), 1+m.IntN(300))
}

// connection opens one, uses it and ends it or leaves it; some replies get lost.
func (m *packetMaker) connection() error {
	f := families[m.IntN(2)]
	src := at(m.address(f), 1024+m.IntN(20000))
	dst := at(f.vip(soakVIPs[m.IntN(len(soakVIPs))]), 80)
	if m.IntN(10) == 0 {
		f = ipv4
		src, dst = at(m.address(f), 1024+m.IntN(20000)), nthVIP(0)
	}
	tcp := m.IntN(4) != 0
	packet := func(flags string) testenv.Packet {
		if tcp {
			return testenv.TCP(src, dst, flags)
		}
		return testenv.UDP(src, dst, "question")
	}
	c := skBuff{}
	if m.IntN(8) == 0 {
		c.Mark = uint32([]int{markMasq, markDirect, 9}[m.IntN(3)])
	}
	ways := []string{"S A F A", "S A A A R", "S A", "S A A A A A A F A", "S", "A", "S A F"}
	var reply []byte
	for _, flags := range strings.Fields(ways[m.IntN(len(ways))]) {
		got, err := m.put(sent{frame: packet(flags).Frame(), context: c})
		if err != nil {
			return err
		}
		if got.verdict == redirect {
			reply = turned(got.frame)
		}
		if reply == nil || m.IntN(10) == 0 {
			continue
		}
		if at, protocol := transportOf(reply); tcp && protocol == 6 && at+14 <= len(reply) {
			reply[at+13] = map[string]byte{"S": 0x12, "A": 0x10, "F": 0x11, "R": 0x04}[flags]
		}
		if _, err := m.put(sent{frame: testenv.Summed(reply), fromServer: true}); err != nil {
			return err
		}
	}
	return nil
}

// call is a packet of SIP, mostly of a client.
func (m *packetMaker) call() error {
	f := families[m.IntN(2)]
	vip := at(f.vip(vipCalls+m.IntN(2)), 5060)
	id := fmt.Sprintf("%d@h", m.IntN(3000))
	if m.IntN(10) == 0 { // a server sends first
		server := at(f.server(m.IntN(32)), 5060)
		_, err := m.put(sent{frame: testenv.UDP(server, at(m.address(f), 5060), invite(id)).Frame(), fromServer: true})
		return err
	}
	_, err := m.put(sent{frame: testenv.UDP(at(m.address(f), 5060+m.IntN(3)), vip, invite(id)).Frame()})
	return err
}

// syns are of clients that send nothing else.
func (m *packetMaker) syns(n int) error {
	for range n {
		f := families[m.IntN(2)]
		src := fmt.Sprintf("10.%d.%d.%d", 128+m.IntN(127), m.IntN(256), m.IntN(256))
		if f.number == ipv6.number {
			src = fmt.Sprintf("fd00:10:%x::%x", m.IntN(1<<16), m.IntN(1<<16))
		}
		p := testenv.TCP(at(src, 1024+m.IntN(60000)), at(f.vip(soakVIPs[m.IntN(len(soakVIPs))]), 80), "S")
		if _, err := m.put(sent{frame: p.Frame()}); err != nil {
			return err
		}
	}
	return nil
}
