// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
)

// adopt enters the earlier build's connections into the new table, templates
// first, since connections hold them. The earlier table is not written any more.
// Until it is through, packets of unknown connections are dropped.
func (u *upgrade) adopt() error {
	set, err := u.next.settings()
	if err != nil {
		return err
	}
	if waits, err := set.get(adoptingSetting); err != nil || !waits {
		return err
	}
	for _, templates := range []bool{true, false} {
		for _, table := range []string{"conns4", "conns6"} {
			a, err := u.newAdopter(table)
			if err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
			if err := a.run(templates); err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
			u.result.Adopted += a.done
		}
	}
	return errors.Join(set.set(adoptingSetting, false), set.put())
}

// adopter takes over one table.
type adopter struct {
	from    *ebpf.Map
	buffer  *ebpf.Map
	program *ebpf.Program
	convert *layout.Converter
	decode  func([]byte) (bpfobj.LbConn6, error)
	size    uint32 // of a value in the new layout [bytes]
	records []bpfobj.LbConnRecord
	keys    [][]byte // of the records, in the earlier table
	done    int
	at      func(string)
}

func (u *upgrade) newAdopter(table string) (*adopter, error) {
	a := &adopter{from: u.cur.maps[table], buffer: u.next.maps["conn_records"], program: u.next.progs["adopt_conns"], at: u.at}
	to := u.next.maps[table]
	if a.from == nil || to == nil || a.buffer == nil || a.program == nil {
		return nil, errors.New("a pin is missing")
	}
	name := map[string]string{"conns4": "conn4", "conns6": "conn6"}[table]
	was, err := valueLayout(a.from, name)
	if err != nil {
		return nil, err
	}
	is, err := valueLayout(to, name)
	if err != nil {
		return nil, err
	}
	if is.Size != to.ValueSize() || was.Size != a.from.ValueSize() {
		return nil, errors.New("its values are not of the type that the kernel says")
	}
	compiledAs, err := compiledLayout(table)
	if err != nil {
		return nil, err
	}
	if d := is.Differences(compiledAs); len(d) > 0 {
		return nil, fmt.Errorf("the upgrade was begun by another build of imbang: finish it with that one (%s)", d[0])
	}
	a.size = is.Size
	a.convert, err = layout.NewConverter(was, is)
	a.decode = decodeConn6
	if table == "conns4" {
		a.decode = decodeConn4
	}
	return a, err
}

// compiledLayout is the layout of a map's values in this program.
func compiledLayout(table string) (layout.Layout, error) {
	spec, err := compiled()
	if err != nil {
		return layout.Layout{}, err
	}
	return layout.Of(spec.Maps[table].Value)
}

// run adopts the templates of the table, or the connections. It reads bucket by bucket, so
// that what was adopted can be deleted meanwhile.
func (a *adopter) run(templates bool) error {
	bytesOf := func(size uint32) reflect.Value {
		one := reflect.ArrayOf(int(size), reflect.TypeFor[byte]())
		return reflect.MakeSlice(reflect.SliceOf(one), connBatch, connBatch)
	}
	keys, values := bytesOf(a.from.KeySize()), bytesOf(a.from.ValueSize())
	fresh := make([]byte, a.size)
	err := eachRead(a.from, keys.Interface(), values.Interface(), func(n int) error {
		for i := range n {
			if err := a.add(keys.Index(i).Bytes(), values.Index(i).Bytes(), fresh, templates); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.flush()
}

func (a *adopter) add(key, value, fresh []byte, templates bool) error {
	a.convert.Convert(fresh, value)
	c, err := a.decode(fresh)
	if err != nil || (c.Flow.Template != 0) != templates || c.Flags&connLeft == connDead {
		return err
	}
	if c.Flags&connLeft == connLeft { // its server counts it still, its template does not: it ends anew, at once
		c.Flags &^= connLeft
		c.Expires, c.Template = 0, uint8(bpfobj.LbTemplateKindTEMPLATE_NONE)
		if templates {
			c.Fwmark = 0 // connections
		}
	}
	a.records = append(a.records, bpfobj.LbConnRecord{
		Flow: c.Flow, Server: c.Server, Expires: c.Expires, Port: c.Port, State: c.State, Flags: c.Flags,
		Template: c.Template, Forward: c.Forward, InPackets: c.InPackets, Fwmark: c.Fwmark, Netmask: c.Netmask,
		ToldEnd: c.ToldEnd, Told: uint8(c.Number >> toldShift),
	})
	a.keys = append(a.keys, bytes.Clone(key))
	if len(a.records) == recordBatch {
		return a.flush()
	}
	return nil
}

// flush runs the program on the records.
func (a *adopter) flush() error {
	if len(a.records) == 0 {
		return nil
	}
	if a.at != nil {
		a.at("adopt a batch")
	}
	results, err := enterRecords(a.buffer, a.program, a.records)
	if err != nil {
		return err
	}
	full := false
	for i, r := range results {
		switch r.Result {
		case bpfobj.LbRecordResultRECORD_ENTERED:
			a.done++
		case bpfobj.LbRecordResultRECORD_EXISTS:
		default:
			full = true
			continue
		}
		// Run again, it must neither be entered again if it is over by then, nor taken
		// from its server's count again. That is still possible for what ends between
		// a kill right here and the next run: imbang audit --repair corrects the counts.
		if err := a.from.Delete(a.keys[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	a.records, a.keys = a.records[:0], a.keys[:0]
	if full {
		return fmt.Errorf("no room for a connection in the new table (%d were adopted)", a.done)
	}
	return nil
}
