// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
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
	table, err := u.newTable()
	if err != nil {
		return err
	}
	if err := u.makeRoom(table, set); err != nil {
		return err
	}
	for _, templates := range []bool{true, false} {
		for _, former := range formerTables {
			a, err := u.newAdopter(former, table)
			if err != nil {
				return fmt.Errorf("table %s: %w", former, err)
			}
			if err := a.run(templates); err != nil {
				return fmt.Errorf("table %s: %w", former, err)
			}
			u.result.Adopted += a.done
		}
	}
	return errors.Join(set.set(adoptingSetting, false), set.put())
}

// newTable is the memory of the new build's connection table: of a Director, what adds pages.
func (u *upgrade) newTable() (*Director, error) {
	d := &Director{}
	d.maps.BlockPages, d.maps.Pages, d.maps.Blocks = u.next.maps["block_pages"], u.next.maps["pages"], u.next.maps["blocks"]
	if d.maps.BlockPages == nil || d.maps.Pages == nil || d.maps.Blocks == nil {
		return nil, errors.New("a pin of the new connection table is missing")
	}
	return d, nil
}

// makeRoom raises the bound of the new table if the earlier ones have more entries, and notes for how
// many connections the new one has room. No program writes the earlier ones any more.
func (u *upgrade) makeRoom(table *Director, set *element) error {
	lines := uint64(0)
	for i, former := range formerTables {
		n, err := countElements(u.cur.maps[former])
		if err != nil {
			return fmt.Errorf("table %s: %w", former, err)
		}
		lines += uint64(i+1) * n // an entry of IPv6 takes two lines
	}
	if lines > 0 {
		atHand := uint32(2 * ebpf.MustPossibleCPU()) // of each CPU, a block of each family
		if err := raiseBound(table.maps.Pages, min(blocksFor(lines+lines/8)+atHand, maxBlocks)); err != nil {
			return err
		}
	}
	room, err := roomOf(u.next.maps)
	if err != nil {
		return err
	}
	return set.integers(roomSetting, room[:])
}

// countElements counts those of a hash.
func countElements(m *ebpf.Map) (n uint64, err error) {
	if m == nil {
		return 0, errors.New("its pin is missing")
	}
	keys, values := elementsOf(m.KeySize()), elementsOf(m.ValueSize())
	err = eachRead(m, keys.Interface(), values.Interface(), func(read int) error {
		n += uint64(read)
		return nil
	})
	return n, err
}

// elementsOf is room for as many keys, or values, of a size as one system call reads.
func elementsOf(size uint32) reflect.Value {
	one := reflect.ArrayOf(int(size), reflect.TypeFor[byte]())
	return reflect.MakeSlice(reflect.SliceOf(one), connBatch, connBatch)
}

// adopter takes over one table.
type adopter struct {
	from    *ebpf.Map
	table   *Director // the new one
	buffer  *ebpf.Map
	program *ebpf.Program
	fields  formerConn
	records []bpfobj.LbConnRecord
	keys    [][]byte // of the records, in the earlier table
	done    int
	at      func(string)
}

func (u *upgrade) newAdopter(former string, table *Director) (*adopter, error) {
	a := &adopter{from: u.cur.maps[former], table: table, buffer: u.next.maps["conn_records"], program: u.next.progs["adopt_conns"], at: u.at}
	if a.from == nil || a.buffer == nil || a.program == nil {
		return nil, errors.New("a pin is missing")
	}
	was, err := valueLayout(a.from, formerValues[former])
	if err != nil {
		return nil, err
	}
	if was.Size != a.from.ValueSize() {
		return nil, errors.New("its values are not of the type that the kernel says")
	}
	a.fields, err = formerConnOf(was, former == "conns6")
	return a, err
}

// run adopts the templates of the table, or the connections. It reads bucket by bucket, so
// that what was adopted can be deleted meanwhile.
func (a *adopter) run(templates bool) error {
	keys, values := elementsOf(a.from.KeySize()), elementsOf(a.from.ValueSize())
	err := eachRead(a.from, keys.Interface(), values.Interface(), func(n int) error {
		for i := range n {
			if err := a.add(keys.Index(i).Bytes(), values.Index(i).Bytes(), templates); err != nil {
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

func (a *adopter) add(key, value []byte, templates bool) error {
	r := a.fields.record(value)
	if (r.Flow.Template != 0) != templates || r.Flags&connLeft == connDead {
		return nil
	}
	if r.Flags&connLeft == connLeft { // its server counts it still, its template does not: it ends anew, at once
		r.Flags &^= connLeft
		r.Expires, r.Template = 0, uint8(bpfobj.LbTemplateKindTEMPLATE_NONE)
		if templates {
			r.Fwmark = 0 // connections
		}
	}
	a.records = append(a.records, r)
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
	if _, err := a.table.provide(); err != nil { // or the kernel would allocate each block by itself
		return err
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
