// SPDX-License-Identifier: Apache-2.0

package own

// store keeps the latest datagrams to send them again, with their tags.
type store struct {
	slots [][]byte // by number, modulo the length, a power of two
	next  uint64   // number of the next one; the first is 1
}

func newStore(size int) store {
	n := 1
	for n < size {
		n *= 2
	}
	return store{slots: make([][]byte, n), next: 1}
}

// add keeps one under the next number.
func (s *store) add(b []byte) {
	slot := &s.slots[s.next&uint64(len(s.slots)-1)]
	*slot = append((*slot)[:0], b...)
	s.next++
}

// oldest is the number of the oldest one; next if there is none.
func (s *store) oldest() uint64 {
	if size := uint64(len(s.slots)); s.next > size {
		return s.next - size
	}
	return 1
}

// get returns one that is between oldest and next.
func (s *store) get(number uint64) []byte { return s.slots[number&uint64(len(s.slots)-1)] }
