// SPDX-License-Identifier: Apache-2.0

package own

import (
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
)

// endless is a table of n connections that are made when they are read.
type endless struct{ at, n int }

func (*endless) Close() {}

func (c *endless) Next(entries []model.Connection) (n int, err error) {
	for n < len(entries) && c.at < c.n {
		entries[n] = conn(c.at)
		n++
		c.at++
	}
	if c.at == c.n {
		return n, io.EOF
	}
	return n, nil
}

// joined are a sender, and a receiver that has its table.
func joined(b *testing.B, entries int) (s *Sender, r *Receiver, now time.Duration) {
	rng := rand.New(rand.NewPCG(1, 1))
	c := Config{Group: 5, Key: testKey, To: w0, Random: rng.Uint64, Table: func() Cursor { return &endless{n: entries} }, Rate: 1 << 30}
	s, err := NewSender(0, c)
	if err != nil {
		b.Fatal(err)
	}
	c.Table = nil
	if r, err = NewReceiver(0, c); err != nil {
		b.Fatal(err)
	}
	var a, o Output
	for !r.synced {
		now += 50 * time.Microsecond
		if now > time.Hour {
			b.Fatal("not synced")
		}
		a.Reset()
		s.Tick(now, &a)
		r.Tick(now, &o)
		for len(a.Datagrams)+len(o.Datagrams) > 0 {
			for _, d := range a.Datagrams {
				r.Receive(now, w0[0], d.Bytes, &o)
			}
			a.Reset()
			for _, d := range o.Datagrams {
				s.Receive(now, w0[0], d.Bytes, &a)
			}
			o.Reset()
		}
	}
	return s, r, now
}

var w0 = []netip.AddrPort{group}

// BenchmarkUpdate is what a record costs the sender: encoding, HMAC and keeping it.
func BenchmarkUpdate(b *testing.B) {
	s, _, now := joined(b, 0)
	entries := make([]model.Connection, 480)
	for i := range entries {
		entries[i] = conn(i)
	}
	var out Output
	for range 2 * s.config.Store / 10 { // slots of the store are allocated once
		out.Reset()
		s.Update(now, entries, &out)
	}
	b.ReportAllocs()
	datagrams := s.counts.Datagrams
	for n := 0; b.Loop(); n++ {
		if n%len(entries) == 0 {
			out.Reset()
			s.Update(now, entries, &out)
		}
	}
	b.ReportMetric(float64(s.counts.Entries)/float64(s.counts.Datagrams), "records/datagram")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.counts.Datagrams-datagrams), "ns/datagram")
}

// BenchmarkApply is what a record costs the receiver: HMAC and decoding.
func BenchmarkApply(b *testing.B) {
	for name, control := range map[string]*model.Control{"plain": nil, "controlled": {Kind: model.TemplatePort, Netmask: 0xffffffff}} {
		b.Run(name, func(b *testing.B) {
			s, r, now := joined(b, 0)
			entries := make([]model.Connection, 480)
			for i := range entries {
				entries[i] = conn(i)
				entries[i].Control = control
			}
			var out, in Output
			b.ReportAllocs()
			spent, records, datagrams := time.Duration(0), 0, 0
			for b.Loop() {
				out.Reset()
				s.Update(now, entries, &out)
				began := time.Now()
				for _, d := range out.Datagrams {
					in.Reset()
					r.Receive(now, w0[0], d.Bytes, &in)
					records += len(in.Apply)
					datagrams++
				}
				spent += time.Since(began)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(records), "ns/record")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(datagrams), "ns/datagram-in")
		})
	}
}

// BenchmarkRefuse is what a forged datagram costs a receiver.
func BenchmarkRefuse(b *testing.B) {
	s, r, now := joined(b, 0)
	for name, change := range map[string]func(x []byte){
		"forged":   func(x []byte) { x[len(x)-1] ^= 1 },
		"foreign":  func(x []byte) { x[0] ^= 1 },
		"replayed": func(x []byte) { clear(x[16:24]) },
	} {
		b.Run(name, func(b *testing.B) {
			var out Output
			entries := make([]model.Connection, 60)
			for i := range entries {
				entries[i] = conn(i)
			}
			s.Update(now, entries, &out)
			x := append([]byte(nil), out.Datagrams[0].Bytes...)
			for _, d := range out.Datagrams[1:] {
				r.Receive(now, w0[0], d.Bytes, &out)
			}
			change(x)
			out.Reset()
			b.ReportAllocs()
			for b.Loop() {
				r.Receive(now, w0[0], x, &out)
			}
			if r.counts.Refused[ReasonForged]+r.counts.Refused[ReasonForeign]+r.counts.Refused[ReasonReplayed] < uint64(b.N) {
				b.Fatal("not refused")
			}
		})
	}
}

// BenchmarkBulk is a bulk transfer of a million connections, both sides on one core,
// without the pace of time.
func BenchmarkBulk(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		_, r, _ := joined(b, n)
		if r.counts.Entries != n {
			b.Fatal(r.counts)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
}

// BenchmarkWalk is what an entry costs in a pass that refreshes few.
func BenchmarkWalk(b *testing.B) {
	w := walk{seed: 1}
	c := conn(1)
	c.Expires -= 10 * time.Minute
	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		w.begin(w.next, 10*time.Second)
		if w.due(w.began, &c) {
			sent++
		}
	}
	if sent != 0 {
		b.Fatal("an entry without a packet is refreshed")
	}
}
