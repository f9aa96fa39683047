// SPDX-License-Identifier: Apache-2.0

package explore

import "math/bits"

// A fault is a rule of the protocol that is left out. Each must be noticed.
type fault uint8

const (
	none                   fault = iota
	claimNotCompared             // buckets.h 2: the geometry is not read again under a claim
	openUnclaimed                // buckets.h 1: an entry is entered without a claim
	splitUnclaimed               // buckets.h 1: a split does not claim the bucket
	splitCopiesLate              // buckets.h 3: the geometry is published, then the new bucket filled
	absentWithoutControl         // buckets.h 4: nothing found counts though the bucket has changed
	absentWithoutGeometry        // buckets.h 4: or though the geometry has
	givenBeforeUnlinked          // pages.bpf.c 4: an entry is given back, then taken from its bucket
	hashAfterGiven               // pages.bpf.c 4: and its bucket is looked for after that
	endedByStore                 // pages.bpf.c 1: an end is a store
	takenOverByStore             // pages.bpf.c 6: so is a take-over
	incarnationNotCompared       // pages.bpf.c 5: a reader compares none
	incarnationNotRaised         // pages.bpf.c 1: an opening keeps the incarnation
	incarnationLast              // pages.bpf.c 3: an entry's incarnation is written behind its fields
	abandonedCounted             // pages.bpf.c 4: the end of an abandoned entry is counted again
	abandonedAsFree              // pages.bpf.c 4: an entry whose bucket is claimed just stays there
	lastUnclaimed                // buckets.h 2: a merge does not claim the last bucket
	openIgnoresChain             // buckets.h 1: an opening does not look through the chain
	endIgnoresChain              // pages.bpf.c 4: an end does not take the entry from the chain
	splitIgnoresChain            // buckets.h 3: a split leaves a chain as it is
	moveUnclaimed                // pages.bpf.c 7: a move does not claim the bucket
	movedByStore                 // pages.bpf.c 7: it ends the former entry by a store
	movedInTwoLives              // pages.bpf.c 7: or after the new one lives
	splitLeavesLinks             // buckets.h 3: or copies from it, and the links stay
	faults
)

// Programs.
const (
	idle = iota
	opener
	ender // of an entry that is due
	killer
	clock
	splitter
	merger
	reader
	mover
)

// Results.
const (
	nothing = iota
	opened
	existed
	full
	found
	foundMixed // another connection's content
	absent
)

var programs = [...]func(*step){
	idle:     func(s *step) { s.c.over = true },
	opener:   open,
	ender:    end,
	killer:   end,
	clock:    passTime,
	splitter: split,
	merger:   merge,
	reader:   read,
	mover:    move,
}

// Registers that programs have in common.
const (
	rFlow = iota
	rIndex
	rBucket
	rControl
	rSlot
	rWord
	rSeen
	rEmpty
	rMoved
	rOther
)

func (s *step) finish(result uint8) {
	s.c.over = true
	s.c.result = result
	s.c.r = [10]uint8{}
	s.c.pc = 0
}

// take takes a free entry, in two steps from pc `at`; then pc is at+2. If there is none, the program
// ends.
func (s *step) take(at uint8, into int) {
	r, c := &s.c.r, s.c
	if c.pc == at {
		r[rWord] = s.load(free)
		if r[rWord] == 0 {
			s.finish(full)
			return
		}
		r[into] = uint8(bits.TrailingZeros8(r[rWord]))
		c.pc++
		return
	}
	swapped, done := s.swap(free, r[rWord], r[rWord]&^(1<<r[into]))
	if swapped {
		c.pc++
	} else if done {
		c.pc = at
	}
}

// kill ends the connection of an entry that was seen with this time, by a store if that fault is made:
// entry_kill.
func (s *step) kill(index, seen uint8, byStore fault) (swapped, done bool) {
	if s.fault == byStore {
		done = s.put(entry(index, expires), seen&^life)
		return done, done
	}
	return s.swap(entry(index, expires), seen, seen&^life)
}

// claim claims the bucket of rFlow, in four steps from pc `at`; then pc is at+4. A claim that
// does not count is left by the step at+3, which begins again. With the fault `unclaimed` the bucket is
// looked at, and not claimed.
func (s *step) claim(at uint8, unclaimed fault) {
	r, c := &s.c.r, s.c
	switch c.pc - at {
	case 0:
		r[rBucket] = bucketOf(r[rFlow], s.load(geometry))
		c.pc++
	case 1:
		r[rControl] = s.load(control(r[rBucket]))
		c.pc++
		if unclaimed != none && s.fault == unclaimed {
			r[rSlot] = 0
			c.pc = at + 4
		} else if r[rControl]&claimed != 0 {
			c.pc = at
		}
	case 2:
		swapped, done := s.swap(control(r[rBucket]), r[rControl], r[rControl]|claimed)
		if swapped {
			c.pc++
		} else if done {
			c.pc = at
		}
	case 3:
		if bucketOf(r[rFlow], s.load(geometry)) == r[rBucket] || s.fault == claimNotCompared {
			c.pc++
			r[rSlot] = 0
		} else if s.put(control(r[rBucket]), (r[rControl]+1)&^claimed) {
			c.pc = at
		}
	}
}

// leave ends a claim.
func (s *step) leave() bool {
	r := &s.c.r
	return s.put(control(r[rBucket]), (r[rControl]+1)&^claimed)
}

func (s *step) give(index uint8) bool {
	_, done := s.atomic(free, func(was uint8) uint8 { return was | 1<<index })
	return done
}

// renewed is the expires of a dead entry with the next incarnation: entry_renew.
func (s *step) renewed(ended uint8) uint8 {
	if s.fault == incarnationNotRaised {
		return ended
	}
	return ended + incarnation
}

// open opens a connection of rFlow: table_open.
func open(s *step) {
	r, c := &s.c.r, s.c
	const (
		take = iota
		takeIt
		count
		writeFirst
		writeSecond
		writeThird
		writeFourth
		claim0
		claim1
		claim2
		claim3
		scan
		compare
		judge
		follow
		takeOver
		rewrite
		revive
		enter
		head
		linkIt
		chainIt
		publish
		leave
		giveBack
	)
	next := func() { // slot, or entry of the chain
		if r[rSlot] > s.w.width {
			c.pc = follow
			return
		}
		r[rSlot]++
		c.pc = scan
	}
	looked := func(word uint8) { // into the chain
		r[rWord] = word
		c.pc = compare
		if word == 0 {
			c.pc = enter
			if r[rEmpty] == 0 {
				c.pc = head
			}
		}
	}
	switch c.pc {
	case take, takeIt:
		s.take(take, rIndex)
	case count:
		r[rSeen] = s.renewed(s.load(entry(r[rIndex], expires)))
		c.pc = writeFirst
	case writeFirst, writeSecond, writeThird, writeFourth:
		order := [...]uint8{expires, flow, content, link}
		if s.fault == incarnationLast {
			order = [...]uint8{flow, content, link, expires}
		}
		field, value := order[c.pc-writeFirst], r[rFlow]
		switch field {
		case expires:
			value = r[rSeen]
		case link:
			value = 0
		}
		if s.put(entry(r[rIndex], field), value) {
			c.pc++
		}
	case claim0, claim1, claim2, claim3:
		r[rEmpty] = 0
		s.claim(claim0, openUnclaimed)
	case scan:
		if r[rSlot] == s.w.width {
			r[rSlot]++
			if s.fault == openIgnoresChain {
				looked(0)
			} else {
				looked(s.load(chain(r[rBucket])))
			}
			return
		}
		r[rWord] = s.load(slot(r[rBucket], r[rSlot]))
		if r[rWord] == 0 {
			r[rEmpty] = r[rSlot] + 1
			next()
			return
		}
		c.pc = compare
	case compare:
		if s.load(entry(r[rWord], flow)) != r[rFlow] {
			next()
			return
		}
		c.pc = judge
	case judge:
		r[rMoved] = s.load(entry(r[rWord], expires))
		switch r[rMoved] & life {
		case dead, abandoned:
			next()
		case live:
			r[rOther] = existed
			c.pc = leave
		case due:
			c.pc = takeOver
		}
	case follow:
		looked(s.load(entry(r[rWord], link)))
	case takeOver:
		swapped, done := s.kill(r[rWord], r[rMoved], takenOverByStore)
		if swapped {
			s.w.ended[r[rFlow]]++
			r[rMoved] = s.renewed(r[rMoved] &^ life)
			c.pc = rewrite
		} else if done {
			c.pc = judge // it has just ended
		}
	case rewrite:
		if s.put(entry(r[rWord], expires), r[rMoved]) {
			c.pc = revive
		}
	case revive:
		if s.put(entry(r[rWord], expires), r[rMoved]|live) {
			s.w.opened[r[rFlow]]++
			r[rOther] = opened
			c.pc = leave
		}
	case enter:
		if s.put(slot(r[rBucket], r[rEmpty]-1), r[rIndex]) {
			c.pc = publish
		}
	case head:
		r[rWord] = s.load(chain(r[rBucket]))
		c.pc = linkIt
	case linkIt:
		if s.put(entry(r[rIndex], link), r[rWord]) {
			c.pc = chainIt
		}
	case chainIt:
		if s.put(chain(r[rBucket]), r[rIndex]) {
			c.pc = publish
		}
	case publish:
		if s.put(entry(r[rIndex], expires), r[rSeen]|live) {
			s.w.opened[r[rFlow]]++
			r[rOther] = opened
			r[rIndex] = 0
			c.pc = leave
		}
	case leave:
		if s.fault != openUnclaimed && !s.leave() {
			return
		}
		if r[rIndex] == 0 {
			s.finish(r[rOther])
			return
		}
		c.pc = giveBack
	case giveBack:
		if s.give(r[rIndex]) {
			s.finish(r[rOther])
		}
	}
}

// end ends the entry rIndex: entry_end, of the sweep if it is due, or of a command.
func end(s *step) {
	r, c := &s.c.r, s.c
	const (
		look = iota
		whose
		kill
		hash
		giveEarly
		claim0
		claim1
		claim2
		claim3
		scan
		clear
		refill
		advance
		follow
		unlink
		leave
		giveBack
		abandon
	)
	walk := func(word uint8) { // to the next entry of the chain
		r[rWord] = word
		c.pc = follow
		if word == 0 {
			c.pc = leave
		} else if word == r[rIndex] {
			c.pc = unlink
		}
	}
	switch c.pc {
	case look:
		r[rSeen] = s.load(entry(r[rIndex], expires))
		wrong := r[rSeen]&life == abandoned
		if c.program == ender {
			wrong = r[rSeen]&life == live
		}
		if r[rSeen]&life == dead || wrong {
			s.finish(nothing)
			return
		}
		c.pc = whose
	case whose:
		// A command ends a flow, which it has found here.
		r[rFlow] = s.load(entry(r[rIndex], flow))
		c.pc = kill
	case kill:
		swapped, done := s.kill(r[rIndex], r[rSeen], endedByStore)
		if swapped {
			was := s.load(entry(r[rIndex], flow))
			if r[rSeen]&life != abandoned || s.fault == abandonedCounted {
				s.w.ended[was]++
			}
			if c.program == killer && was != r[rFlow] && s.fault != endedByStore {
				s.w.mistaken = true
			}
			c.pc = hash
			if s.fault == hashAfterGiven {
				c.pc = giveEarly
			}
		} else if done {
			s.finish(nothing)
		}
	case hash:
		r[rFlow] = s.load(entry(r[rIndex], flow))
		c.pc = claim0
		if s.fault == givenBeforeUnlinked {
			c.pc = giveEarly
		}
	case giveEarly:
		if s.give(r[rIndex]) {
			c.pc = claim0
			if s.fault == hashAfterGiven {
				c.pc = hash
			}
		}
	case claim0, claim1, claim2, claim3:
		s.claim(claim0, none)
		if c.pc == claim0 && r[rControl]&claimed != 0 {
			c.pc = abandon // the prototype tries it more often
		}
	case abandon:
		value := r[rSeen]&^life | abandoned
		if s.fault == abandonedAsFree {
			value = r[rSeen] &^ life
		}
		if s.put(entry(r[rIndex], expires), value) {
			s.finish(nothing)
		}
	case scan:
		if r[rSlot] == s.w.width {
			r[rOther] = 0 // the entry before it
			if s.fault == endIgnoresChain {
				walk(0)
			} else {
				walk(s.load(chain(r[rBucket])))
			}
			return
		}
		if s.load(slot(r[rBucket], r[rSlot])) == r[rIndex] {
			c.pc = clear
		} else {
			r[rSlot]++
		}
	case clear:
		r[rWord] = s.load(chain(r[rBucket]))
		c.pc = refill
	case refill:
		// The chain's first one has the slot; 0 if there is no chain.
		if s.put(slot(r[rBucket], r[rSlot]), r[rWord]) {
			c.pc = leave
			if r[rWord] != 0 {
				r[rMoved] = s.load(entry(r[rWord], link))
				c.pc = advance
			}
		}
	case advance:
		if s.put(chain(r[rBucket]), r[rMoved]) {
			c.pc = leave
		}
	case follow:
		r[rOther] = r[rWord]
		walk(s.load(entry(r[rWord], link)))
	case unlink:
		at := chain(r[rBucket])
		if r[rOther] != 0 {
			at = entry(r[rOther], link)
		}
		if s.put(at, s.load(entry(r[rIndex], link))) {
			c.pc = leave
		}
	case leave:
		if !s.leave() {
			return
		}
		c.pc = giveBack
		if s.fault == givenBeforeUnlinked || s.fault == hashAfterGiven {
			s.finish(nothing)
		}
	case giveBack:
		if s.give(r[rIndex]) {
			s.finish(nothing)
		}
	}
}

// passTime has the entry rIndex become due, if it lives.
func passTime(s *step) {
	_, done := s.atomic(entry(s.c.r[rIndex], expires), func(was uint8) uint8 {
		if was&life == live {
			return was&^life | due
		}
		return was
	})
	if done {
		s.finish(nothing)
	}
}

// split makes two buckets of one: split_one.
func split(s *step) {
	r, c := &s.c.r, s.c
	const (
		look = iota
		claim
		early
		scan
		hash
		copyWord
		first
		chained
		drop
		place
		chainIt
		publish
		clear
		refill
		advance
		leave
	)
	const (
		rNext = rOther
		rLast = rFlow // one of the chain that stays
	)
	walk := func(word uint8) { // to the next entry of the chain
		r[rWord] = word
		c.pc = chained
		if word == 0 {
			r[rSlot] = 0
			c.pc = publish
			if s.fault == splitCopiesLate {
				c.pc = clear
			}
		}
	}
	switch c.pc {
	case look:
		r[rControl] = s.load(control(0))
		if r[rControl]&claimed != 0 {
			s.finish(nothing)
			return
		}
		c.pc = claim
	case claim:
		value := r[rControl] | claimed
		if s.fault == splitUnclaimed {
			value = r[rControl]
		}
		swapped, done := s.swap(control(0), r[rControl], value)
		if swapped {
			c.pc = scan
			if s.fault == splitCopiesLate {
				c.pc = early
			}
		} else if done {
			s.finish(nothing)
		}
	case early:
		if _, done := s.swap(geometry, 1, 2); done {
			c.pc = scan
		}
	case scan:
		if r[rSlot] == s.w.width {
			c.pc = first
			split(s)
			return
		}
		r[rWord] = s.load(slot(0, r[rSlot]))
		if r[rWord] == 0 {
			r[rSlot]++
			return
		}
		c.pc = hash
	case hash:
		if !moves(s.load(entry(r[rWord], flow))) {
			r[rSlot]++
			c.pc = scan
			return
		}
		c.pc = copyWord
	case copyWord:
		if s.put(slot(1, r[rEmpty]), r[rWord]) {
			r[rEmpty]++
			r[rMoved] |= 1 << r[rSlot]
			r[rSlot]++
			c.pc = scan
		}
	case first:
		word := s.load(chain(0))
		if s.fault == splitIgnoresChain {
			word = 0
		}
		walk(word)
	case chained:
		r[rNext] = s.load(entry(r[rWord], link))
		if moves(s.load(entry(r[rWord], flow))) {
			c.pc = drop
			return
		}
		r[rLast] = r[rWord]
		walk(r[rNext])
	case drop:
		at := chain(0)
		if r[rLast] != 0 {
			at = entry(r[rLast], link)
		}
		if s.fault == splitLeavesLinks || s.put(at, r[rNext]) {
			c.pc = place
		}
	case place:
		if r[rEmpty] < s.w.width {
			if s.put(slot(1, r[rEmpty]), r[rWord]) {
				r[rEmpty]++
				walk(r[rNext])
			}
			return
		}
		if s.put(entry(r[rWord], link), s.load(chain(1))) {
			c.pc = chainIt
		}
	case chainIt:
		if s.put(chain(1), r[rWord]) {
			walk(r[rNext])
		}
	case publish:
		if _, done := s.swap(geometry, 1, 2); done {
			c.pc = clear
		}
	case clear:
		for r[rSlot] < s.w.width && r[rMoved]>>r[rSlot]&1 == 0 {
			r[rSlot]++
		}
		if r[rSlot] == s.w.width {
			c.pc = refill
			split(s)
			return
		}
		if s.put(slot(0, r[rSlot]), 0) {
			r[rSlot]++
		}
	case refill:
		r[rWord] = s.load(chain(0))
		if r[rWord] == 0 || r[rMoved] == 0 || s.fault == splitIgnoresChain {
			c.pc = leave
			return
		}
		at := uint8(bits.TrailingZeros8(r[rMoved]))
		if s.put(slot(0, at), r[rWord]) {
			r[rMoved] &^= 1 << at
			c.pc = advance
		}
	case advance:
		if s.put(chain(0), s.load(entry(r[rWord], link))) {
			c.pc = refill
		}
	case leave:
		if s.fault == splitUnclaimed || s.put(control(0), (r[rControl]+1)&^claimed) {
			s.finish(nothing)
		}
	}
}

// merge makes one bucket of two: a split in the other direction. It gives up if a bucket is
// claimed or has a chain, or if one has no room for both.
func merge(s *step) {
	r, c := &s.c.r, s.c
	const (
		look = iota
		claimOld
		lookLast
		claimLast
		chains
		scan
		room
		copyWord
		publish
		clear
		leaveLast
		leaveOld
	)
	switch c.pc {
	case look:
		r[rControl] = s.load(control(0))
		if r[rControl]&claimed != 0 {
			s.finish(nothing)
			return
		}
		c.pc = claimOld
	case claimOld:
		swapped, done := s.swap(control(0), r[rControl], r[rControl]|claimed)
		if swapped {
			c.pc = lookLast
		} else if done {
			s.finish(nothing)
		}
	case lookLast:
		r[rOther] = s.load(control(1))
		c.pc = claimLast
		if r[rOther]&claimed != 0 {
			c.pc = leaveOld
		}
	case claimLast:
		value := r[rOther] | claimed
		if s.fault == lastUnclaimed {
			value = r[rOther]
		}
		swapped, done := s.swap(control(1), r[rOther], value)
		if swapped {
			c.pc = chains
		} else if done {
			c.pc = leaveOld
		}
	case chains:
		c.pc = scan
		if s.load(chain(0)) != 0 || s.load(chain(1)) != 0 {
			c.pc = leaveLast
		}
	case scan:
		if r[rSlot] == s.w.width {
			c.pc = publish
			merge(s)
			return
		}
		r[rWord] = s.load(slot(1, r[rSlot]))
		if r[rWord] == 0 {
			r[rSlot]++
			return
		}
		r[rEmpty] = 0
		c.pc = room
	case room:
		if r[rEmpty] == s.w.width {
			// No room: what was copied is taken out again.
			r[rSlot] = 0
			c.pc = clear
			r[rSeen] = 1
			merge(s)
			return
		}
		if s.load(slot(0, r[rEmpty])) != 0 {
			r[rEmpty]++
			return
		}
		c.pc = copyWord
	case copyWord:
		if s.put(slot(0, r[rEmpty]), r[rWord]) {
			r[rMoved] |= 1 << r[rEmpty]
			r[rSlot]++
			c.pc = scan
		}
	case publish:
		if _, done := s.swap(geometry, 2, 1); done {
			r[rSlot] = 0
			c.pc = clear
		}
	case clear:
		// All of the last bucket, or, if it has to stay, what was copied.
		b := 1 - r[rSeen]
		for b == 0 && r[rSlot] < s.w.width && r[rMoved]>>r[rSlot]&1 == 0 {
			r[rSlot]++
		}
		if r[rSlot] == s.w.width {
			c.pc = leaveLast
			merge(s)
			return
		}
		if s.put(slot(b, r[rSlot]), 0) {
			r[rSlot]++
		}
	case leaveLast:
		if s.fault == lastUnclaimed || s.put(control(1), (r[rOther]+1)&^claimed) {
			c.pc = leaveOld
		}
	case leaveOld:
		if s.put(control(0), (r[rControl]+1)&^claimed) {
			s.finish(nothing)
		}
	}
}

// move gives the connection of entry rIndex another entry: entry_move.
func move(s *step) {
	r, c := &s.c.r, s.c
	const (
		look = iota
		whose
		what
		take
		takeIt
		count
		writeFirst
		writeSecond
		writeThird
		claim0
		claim1
		claim2
		claim3
		scan
		kill
		publish
		enter
		leave
		giveBack
	)
	const rNew, rContent, rExpires = rOther, rMoved, rEmpty
	switch c.pc {
	case look:
		r[rSeen] = s.load(entry(r[rIndex], expires))
		if r[rSeen]&life <= abandoned {
			s.finish(nothing)
			return
		}
		c.pc = whose
	case whose:
		r[rFlow] = s.load(entry(r[rIndex], flow))
		c.pc = what
	case what:
		r[rContent] = s.load(entry(r[rIndex], content))
		c.pc = take
	case take, takeIt:
		s.take(take, rNew)
	case count:
		r[rExpires] = s.renewed(s.load(entry(r[rNew], expires)))
		c.pc = writeFirst
	case writeFirst, writeSecond, writeThird:
		n := c.pc - writeFirst
		if s.put(entry(r[rNew], [...]uint8{expires, flow, content}[n]), [...]uint8{r[rExpires], r[rFlow], r[rContent]}[n]) {
			c.pc++
		}
	case claim0, claim1, claim2, claim3:
		s.claim(claim0, moveUnclaimed)
	case scan:
		if r[rSlot] == s.w.width {
			// It has ended, or is in the chain.
			r[rIndex] = r[rNew]
			c.pc = leave
			move(s)
			return
		}
		if s.load(slot(r[rBucket], r[rSlot])) != r[rIndex] {
			r[rSlot]++
			return
		}
		c.pc = kill
		if s.fault == movedInTwoLives {
			c.pc = publish
		}
	case kill:
		swapped, done := s.kill(r[rIndex], r[rSeen], movedByStore)
		switch {
		case swapped && s.fault == movedInTwoLives:
			c.pc = enter
		case swapped:
			c.pc = publish
		case done: // it has ended, or a packet was faster: later
			r[rIndex] = r[rNew]
			c.pc = leave
		}
	case publish:
		if s.put(entry(r[rNew], expires), r[rExpires]|r[rSeen]&life) {
			c.pc = enter
			if s.fault == movedInTwoLives {
				c.pc = kill
			}
		}
	case enter:
		if s.put(slot(r[rBucket], r[rSlot]), r[rNew]) {
			c.pc = leave
		}
	case leave:
		if s.fault == moveUnclaimed || s.leave() {
			c.pc = giveBack
		}
	case giveBack:
		if s.give(r[rIndex]) {
			s.finish(nothing)
		}
	}
}

// read looks a flow up: entry_find and search_round.
func read(s *step) {
	r, c := &s.c.r, s.c
	const (
		begin = iota
		look
		scan
		before
		whose
		what
		after
		follow
		again
		whole
	)
	next := func() { // slot, or entry of the chain
		if r[rSlot] > s.w.width {
			c.pc = follow
			return
		}
		r[rSlot]++
		c.pc = scan
	}
	looked := func(word uint8) { // into the chain
		r[rWord] = word
		r[rIndex]++
		c.pc = before
		if word == 0 || r[rIndex] > entries+1 {
			c.pc = again
		}
	}
	const rExpires, rWhose, rWhat = rEmpty, rMoved, rOther
	switch c.pc {
	case begin:
		r[rSeen] = s.load(geometry)
		r[rBucket] = bucketOf(r[rFlow], r[rSeen])
		c.pc = look
	case look:
		r[rControl] = s.load(control(r[rBucket]))
		r[rSlot] = 0
		r[rIndex] = 0 // steps in the chain
		c.pc = scan
	case scan:
		if r[rSlot] == s.w.width {
			r[rSlot]++
			looked(s.load(chain(r[rBucket])))
			return
		}
		r[rWord] = s.load(slot(r[rBucket], r[rSlot]))
		if r[rWord] == 0 {
			next()
			return
		}
		c.pc = before
	case follow:
		looked(s.load(entry(r[rWord], link)))
	case before:
		r[rExpires] = s.load(entry(r[rWord], expires))
		c.pc = whose
	case whose:
		r[rWhose] = s.load(entry(r[rWord], flow))
		c.pc = what
	case what:
		r[rWhat] = s.load(entry(r[rWord], content))
		c.pc = after
	case after:
		same := (s.load(entry(r[rWord], expires))^r[rExpires])&^life == 0 || s.fault == incarnationNotCompared
		if r[rWhose] == r[rFlow] && r[rExpires]&life == live && same {
			if r[rWhat] == r[rFlow] {
				s.finish(found)
			} else {
				s.finish(foundMixed)
			}
			return
		}
		r[rExpires], r[rWhose], r[rWhat] = 0, 0, 0
		next()
	case again:
		now := s.load(control(r[rBucket]))
		c.pc = whole
		if (now != r[rControl] || now&claimed != 0) && s.fault != absentWithoutControl {
			c.pc = begin
		}
	case whole:
		if s.load(geometry) == r[rSeen] || s.fault == absentWithoutGeometry {
			s.finish(absent)
		} else {
			c.pc = begin
		}
	}
}
