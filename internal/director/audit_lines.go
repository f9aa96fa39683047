// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"

	"imbang/internal/bpfobj"
)

// linesView is the auditor's picture of lines: which of them have an entry, by what blocks say, and
// which of them buckets lead to. Blocks are read first and change meanwhile. What does not fit then is
// read again, while its bucket does not change: what that shows is so.
type linesView struct {
	taken uint32 // blocks in pages
	// By line, of blocks in pages and then of others:
	hash  []uint32        // of the entry's flow
	next  []uint32        // behind the entry in a chain, and lineTaken; 0: there is no entry
	found []bool          // a bucket leads there
	odd   map[uint32]bool // the entry's hash or index is another's
}

// lineTaken says of a line that it has an entry.
const lineTaken = 1 << 31

func newLinesView(r *blockReader) (*linesView, error) {
	taken, spare, err := r.ranges()
	n := (taken + spare) * indexLines
	return &linesView{taken: taken, hash: make([]uint32, n), next: make([]uint32, n), found: make([]bool, n), odd: map[uint32]bool{}}, err
}

// at is the place of an index.
func (v *linesView) at(index uint32) (uint32, bool) {
	index &= indexMask
	if index >= spareFirst*indexLines {
		index -= (spareFirst - v.taken) * indexLines
	} else if index >= v.taken*indexLines {
		return 0, false
	}
	return index, int(index) < len(v.next)
}

// index is the reverse of at.
func (v *linesView) index(at uint32) uint32 {
	if at >= v.taken*indexLines {
		return at + (spareFirst-v.taken)*indexLines
	}
	return at
}

// read notes the entries of a block, and judges lines without.
func (v *linesView) read(b *block, secret *bpfobj.LbFlowSecret, report func(suspect)) {
	by := step(b.kind())
	if by == 0 {
		return
	}
	free := b.free()
	for line := by; line+by <= blockLines; line += by {
		if free>>line&1 != 0 {
			continue // its entry, if it has one, is judged by the bucket that leads there
		}
		index := b.number*indexLines + line
		if !inUse(b.conn(line)) {
			report(suspect{kind: AuditLineLeaked, number: index, hash: b.conn(line).Expires})
			continue
		}
		if at, ok := v.at(index); ok {
			e := b.entry(line)
			hash := hashFlow(secret, &e.Flow)
			v.hash[at], v.next[at] = uint32(hash), e.Next&indexMask|lineTaken
			if !sane(&e, index, hash) {
				v.odd[at] = true
			}
		}
	}
}

// sane reports whether an entry has its own index, and what its flow says.
func sane(e *entry, index uint32, hash uint64) bool {
	return e.Index == index && e.Hash == uint32(hash)
}

// judge reads all buckets, and then judges the entries that none leads to.
func (v *linesView) judge(ctx context.Context, r *bucketReader, report func(suspect)) error {
	for n := uint32(0); ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.shape(); err != nil { // it grows meanwhile
			return err
		}
		if n >= r.buckets() {
			break
		}
		line, err := r.bucket(n)
		if err != nil {
			return err
		}
		if line == nil {
			continue
		}
		if line[0]&bucketClaimed != 0 {
			report(suspect{kind: AuditClaimed, number: n, from: line[0]})
		} else if !v.fits(r, n, line) {
			if err := v.look(r, n, report); err != nil {
				return err
			}
		}
	}
	r.blocks.forget()
	for at := range v.next {
		if v.next[at] == 0 || v.found[at] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.unreached(r, v.index(uint32(at)), report); err != nil {
			return err
		}
	}
	return nil
}

// fits marks what a bucket leads to, and reports whether all of it is what was read of lines.
func (v *linesView) fits(r *bucketReader, n uint32, line *[lineBytes / 4]uint32) bool {
	all := true
	mark := func(index uint32) (at uint32, is bool) {
		at, is = v.at(index)
		if is = is && v.next[at] != 0 && !v.found[at] && !v.odd[at] && r.bucketOf(v.hash[at]) == n; is {
			v.found[at] = true
		}
		return at, is
	}
	for _, word := range line[1 : 1+bucketSlots] {
		if word == 0 {
			continue
		}
		if at, is := mark(word); !is || tagOf(v.hash[at], line[0]) != word&^indexMask {
			all = false
		}
	}
	for index, steps := line[bucketChain], 0; index != 0; steps++ {
		at, is := mark(index)
		if !is || steps > chainLongest {
			return false
		}
		index = v.next[at] & indexMask
	}
	return all
}

// lookTries is how often a bucket is read that changes meanwhile. Then it is not judged.
const lookTries = 4

// look judges a bucket.
func (v *linesView) look(r *bucketReader, n uint32, report func(suspect)) error {
	for range lookTries {
		var suspects []suspect
		before, same, err := r.still(n, func(line *[lineBytes / 4]uint32) (err error) {
			suspects, err = strays(r, n, line)
			return err
		})
		if err != nil || before == nil {
			return err
		}
		if !same {
			continue
		}
		for _, s := range suspects {
			report(s)
		}
		return nil
	}
	return nil
}

// strays judges what a bucket leads to, that does not change meanwhile.
func strays(r *bucketReader, n uint32, line *[lineBytes / 4]uint32) (found []suspect, err error) {
	seen := map[uint32]bool{}
	member := func(word uint32) (*entry, error) {
		e, err := r.entry(word)
		if e == nil || err != nil {
			return nil, err
		}
		index, hash := word&indexMask, hashFlow(&r.secret, &e.Flow)
		if seen[index] || !sane(e, index, hash) || r.bucketOf(uint32(hash)) != n {
			return nil, nil
		}
		seen[index] = true
		b, err := r.blocks.read(index / indexLines)
		if b != nil && b.free()>>(index%indexLines)&1 != 0 {
			found = append(found, suspect{kind: AuditLineFree, number: index, hash: incarnation(&e.LbConn)})
		}
		return e, err
	}
	for slot := uint32(1); slot <= bucketSlots; slot++ {
		word := line[slot]
		if word == 0 {
			continue
		}
		e, err := member(word)
		if err != nil {
			return nil, err
		}
		if e == nil || tagOf(e.Hash, line[0]) != word&^indexMask {
			found = append(found, suspect{kind: AuditSlotStray, number: n, from: slot, id: word})
		}
	}
	for index, steps := line[bucketChain], 0; index != 0; steps++ {
		e, err := member(index)
		if err != nil {
			return nil, err
		}
		if e == nil || steps > chainLongest {
			found = append(found, suspect{kind: AuditSlotStray, number: n, from: bucketChain, id: line[bucketChain]})
			break
		}
		index = e.Next & indexMask
	}
	return found, nil
}

// unreached reports an entry that its bucket does not lead to.
func (v *linesView) unreached(r *bucketReader, index uint32, report func(suspect)) error {
	e, err := r.entry(index)
	if e == nil || err != nil {
		return err
	}
	hash := hashFlow(&r.secret, &e.Flow)
	s := suspect{kind: AuditUnreached, family: e.Flow.Family, flow: e.Flow, number: index, hash: e.Expires}
	missing := 0
	for range lookTries {
		if err := r.shape(); err != nil {
			return err
		}
		reached := false
		var now *entry
		line, same, err := r.still(r.bucketOf(uint32(hash)), func(line *[lineBytes / 4]uint32) error {
			slots, chain, err := r.members(line)
			if err != nil {
				return err
			}
			for _, word := range append(slots, chain...) {
				reached = reached || word&indexMask == index
			}
			now, err = r.entry(index)
			return err
		})
		if err != nil {
			return err
		}
		if line == nil {
			missing++
			continue
		}
		if reached || now == nil || now.Flow != e.Flow { // or it ended
			return nil
		}
		if s.hash = now.Expires; same {
			report(s)
			return nil
		}
	}
	if missing == lookTries { // its bucket has no memory
		report(s)
	}
	return nil
}

// still reads a bucket and what look reads behind it, and reports whether that bucket stayed the same
// meanwhile: then it was neither split nor merged, whatever became of others. line: nil if there is no
// such bucket.
func (r *bucketReader) still(n uint32, look func(*[lineBytes / 4]uint32) error) (line *[lineBytes / 4]uint32, same bool, err error) {
	if err := r.shape(); err != nil || n >= r.buckets() {
		return nil, false, err
	}
	r.blocks.forget()
	if line, err = r.bucket(n); line == nil || err != nil {
		return nil, false, err
	}
	r.blocks.forget()
	if err := look(line); err != nil {
		return nil, false, err
	}
	r.blocks.forget()
	after, err := r.bucket(n)
	if after == nil || err != nil {
		return nil, false, err
	}
	return line, line[0]&bucketClaimed == 0 && line[0] == after[0], nil
}

// forget lets the next block be read anew.
func (r *blockReader) forget() { r.at = ^uint32(0) }

// incarnation is how often a line's entry was opened, in the low bits.
func incarnation(c *bpfobj.LbConn) uint64 { return c.Expires & (deadTime - 1) }
