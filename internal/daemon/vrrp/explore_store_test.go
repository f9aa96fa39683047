// SPDX-License-Identifier: Apache-2.0

package vrrp

import "hash/maphash"

// store is a set of encoded states, with the step that led to each. It has no pointers, so
// that the garbage collector does not read millions of states over and over.
type store struct {
	seed  maphash.Seed
	index map[uint64]uint32 // by hash; of a collision by the next number
	bytes []byte
	ends  []uint64 // of each state's bytes
	steps []step
}

// step leads from a state to another one.
type step struct {
	parent uint32
	choice choice
}

func newStore() *store { return &store{seed: maphash.MakeSeed(), index: map[uint64]uint32{}} }

func (s *store) len() int { return len(s.ends) }

// key is a state by its number.
func (s *store) key(i uint32) []byte {
	start := uint64(0)
	if i > 0 {
		start = s.ends[i-1]
	}
	return s.bytes[start:s.ends[i]]
}

// add enters a state, unless it is there. New ones are numbered in order.
func (s *store) add(key []byte, from step) (number uint32, added bool) {
	for h := maphash.Bytes(s.seed, key); ; h++ {
		i, ok := s.index[h]
		if !ok {
			i = uint32(len(s.ends))
			s.index[h] = i
			s.bytes = append(s.bytes, key...)
			s.ends = append(s.ends, uint64(len(s.bytes)))
			s.steps = append(s.steps, from)
			return i, true
		}
		if string(s.key(i)) == string(key) {
			return i, false
		}
	}
}
