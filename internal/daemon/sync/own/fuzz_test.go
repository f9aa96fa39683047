// SPDX-License-Identifier: Apache-2.0

package own

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"imbang/internal/model"
)

func FuzzReadEntry(f *testing.F) {
	for _, c := range kinds() {
		b, err := appendEntry(nil, opPut, &c, 7, c.Expires)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out Output
		var c model.Connection
		r := reader{b: b}
		index, err := readEntry(&r, &c, &out)
		if err != nil {
			return
		}
		d := definition{pair: pair{c.Service, at("10.0.0.1:1")}}
		d.complete(&c)
		again, err := appendEntry(nil, b[0]&opMask, &c, index, c.Expires)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", c, err)
		}
		var d2 model.Connection
		if _, err := readEntry(&reader{b: again}, &d2, &out); err != nil {
			t.Fatalf("%x was written as %x: %v", b, again, err)
		}
		d.complete(&d2)
		if diff := difference(d2, c); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzReadDefinition(f *testing.F) {
	for _, c := range kinds() {
		d := definition{pair{c.Service, c.RealServer}, true, 5}
		f.Add(d.append(nil, 7))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := reader{b: b}
		index, d, err := readDefinition(&r)
		if err != nil {
			return
		}
		again := d.append(nil, index)
		if !bytes.Equal(again[1:], b[1:len(again)]) {
			t.Fatalf("%x was written as %x", b, again)
		}
	})
}

// FuzzReadDatagram has authentic datagrams of any content: a receiver and a sender must
// survive them.
func FuzzReadDatagram(f *testing.F) {
	w := newWorld(f, 2, 0)
	w.wire = func(_ *node, d Datagram) { f.Add(slices.Clone(d.Bytes[:len(d.Bytes)-tagSize])) }
	master := w.node().sender()
	w.node().receiver()
	master.load(50*time.Millisecond, 1)
	w.run(100 * time.Millisecond)
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, 2, 0)
		master, backup := w.node().sender(), w.node().receiver()
		w.run(50 * time.Millisecond)
		for _, n := range w.nodes {
			x := slices.Clone(b)
			if len(x) >= headerSize { // of this session, and the next in turn
				number := backup.receive.done + 1
				if k := kind(x[4]); k != kindData && k != kindBulkStart {
					number += 1 << 40
				}
				copy(x[8:], appendHeader(nil, header{session: master.send.session, number: number})[8:])
			}
			x = newSigner(testKey).sign(x)
			n.do(func(out *Output) {
				if n.send != nil {
					n.send.Receive(n.clock(), backup.addr, x, out)
				} else {
					n.receive.Receive(n.clock(), master.addr, x, out)
				}
			})
		}
		w.run(50 * time.Millisecond)
	})
}
