// SPDX-License-Identifier: Apache-2.0

package director

import (
	"time"

	"imbang/internal/bpfobj"
)

// wantSound checks what holds whenever no operation is under way: servers count the connections
// that there are, none of which is dead; packets find each; those with entries of their replies have them;
// and lines, buckets and claims are as the auditor expects them.
func (x *interleaved) wantSound(when string) {
	x.Helper()
	set, err := x.config()
	x.must(err)
	want := make([]bpfobj.LbLoad, set.Servers)
	all, replies, named := x.allEntries(), x.replies(), 0
	for i := range all {
		e := &all[i]
		name := flowText(e.Flow)
		if e.Flags&connDead != 0 {
			x.Errorf("%s: connection %s is in the table and dead: it never expires", when, name)
		}
		if found, err := x.connOf(e.Flow); err != nil || found == nil || found.Index != e.Index {
			x.Errorf("%s: connection %s has entry %d, which its bucket does not lead to (%+v, %v): it never expires", when, name, e.Index, found, err)
		}
		if e.Server >= set.Servers {
			x.Errorf("%s: connection %s has server %d", when, name, e.Server)
			continue
		}
		if replies, err := x.repliesOf(e); err != nil || (replies != nil) != (e.Flow.Template == 0 && e.Flags&connHasReplies != 0) {
			x.Errorf("%s: flags %#x, and the entry of the replies of %s is %+v, %v", when, e.Flags, name, replies, err)
		} else if replies != nil {
			named++
		}
		l := &want[e.Server]
		if e.Flags&connUnproven != 0 {
			l.Overloaded += loadUnproven
		}
		switch {
		case e.Flow.Template != 0:
			l.Persistent++
		case e.Flags&connInactive != 0:
			l.Inactive++
		default:
			l.Active++
		}
	}
	for id, w := range want {
		got := x.load(uint32(id))
		if got.Active != w.Active || got.Inactive != w.Inactive || got.Persistent != w.Persistent {
			x.Errorf("%s: server %d counts %d active, %d inactive connections, %d templates; there are %d, %d, %d", when, id,
				int32(got.Active), int32(got.Inactive), int32(got.Persistent), w.Active, w.Inactive, w.Persistent)
		}
		if unproven(got) != unproven(w) {
			x.Errorf("%s: server %d counts %d unproven entries; there are %d", when, id, int32(unproven(got)), unproven(w))
		}
	}
	if n := x.linesInUse(); n != len(all)+len(replies) {
		x.Errorf("%s: the lines of %d entries are in use; there are %d, and %d of replies", when, n, len(all), len(replies))
	}
	if named != len(replies) {
		x.Errorf("%s: %d entries of replies, of %d connections: %+v", when, len(replies), named, replies)
	}
	for _, e := range replies {
		if found, err := x.connOf(e.Flow); err != nil || found == nil || found.at != e.at {
			x.Errorf("%s: %s has entry %d, which its bucket does not lead to (%+v, %v)", when, flowText(e.Flow), e.at, found, err)
		}
	}
	for _, s := range x.lineFaults() {
		x.Errorf("%s: %s: %+v", when, s.kind, s)
	}
}

// lineFaults is what the auditor suspects of lines and buckets, which no program changes.
func (x *interleaved) lineFaults() (found []suspect) {
	x.Helper()
	r, err := x.newBucketReader()
	x.must(err)
	lines, err := newLinesView(r.blocks)
	x.must(err)
	report := func(s suspect) { found = append(found, s) }
	x.must(r.blocks.eachBlock(x.Context(), func(b *block) error {
		lines.read(b, &r.secret, report)
		return nil
	}))
	r.blocks.forget()
	x.must(lines.judge(x.Context(), r, report))
	return found
}

// wantOver lets more time pass than any connection lives, and checks that nothing is left: no entry,
// no line, and nothing in any bucket.
func (x *interleaved) wantOver() {
	x.Helper()
	x.pass(20 * time.Minute)
	x.wantSound("in the end")
	if n := x.conns(); n != 0 {
		x.Errorf("in the end: %d connections do not expire", n)
	}
	if n := x.linesInUse(); n != 0 {
		x.Errorf("in the end: the lines of %d entries are in use", n)
	}
	for n := range x.buckets() {
		for at, word := range x.bucketLine(n) {
			if at > 0 && word != 0 {
				x.Errorf("in the end: word %d of bucket %d is %#x", at, n, word)
			}
		}
	}
}

// load is what a server counts, by its id.
func (x *interleaved) load(id uint32) (l bpfobj.LbLoad) {
	x.Helper()
	x.must(x.maps.Loads.Lookup(id, &l))
	return l
}
