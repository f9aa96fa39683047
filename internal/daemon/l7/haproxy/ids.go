// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"imbang/internal/daemon/l7"
)

// idRange bounds numbers of servers. HAProxy's consistent hashes are made of the number times
// 4096 in 32 bits (chash_queue_dequeue_srv): beyond, two servers would have the same places.
const idRange = 1 << 20

// serverIDs are the servers' numbers, from 1. Consistent hashes are made of them, so they follow
// from names: with those of HAProxy, which counts, clients would move when a server before theirs
// is removed.
func serverIDs(b *l7.Backend) map[string]int {
	if b.Method == l7.First {
		// HAProxy fills them by their numbers.
		ids := make(map[string]int, len(b.Servers))
		for i := range b.Servers {
			ids[b.Servers[i].Name] = i + 1
		}
		return ids
	}
	return nameIDs(b)
}

// numbers are those of servers by backend: each is found out with all others of the backend, and once.
type numbers map[*l7.Backend]struct{ ids, names map[string]int }

func (n numbers) of(b *l7.Backend) struct{ ids, names map[string]int } {
	known, found := n[b]
	if !found {
		known.ids, known.names = serverIDs(b), nameIDs(b)
		n[b] = known
	}
	return known
}

// cookieValue is what a cookie has of a server: its name, unless that is its address, which is no
// client's business. Then it is a number that too many addresses have to be one.
func cookieValue(s *l7.Server, names map[string]int) string {
	if s.Name != fmt.Sprintf("%s:%d", s.Address.Addr(), s.Address.Port()) {
		return s.Name
	}
	return "s" + strconv.Itoa(names[s.Name])
}

// nameIDs are numbers that follow from names alone.
func nameIDs(b *l7.Backend) map[string]int {
	names := make([]string, len(b.Servers))
	for i := range b.Servers {
		names[i] = b.Servers[i].Name
	}
	slices.Sort(names)
	ids, taken := make(map[string]int, len(names)), make(map[int]bool, len(names))
	for _, name := range names {
		// All bits have to differ for names that differ in their last letter: web1, web2 (not so FNV's).
		sum := sha256.Sum256([]byte(name))
		id := int(binary.BigEndian.Uint32(sum[:]))%(idRange-1) + 1
		for taken[id] { // two names of one number: about one pair of 1000 servers
			id = id%(idRange-1) + 1
		}
		ids[name], taken[id] = id, true
	}
	return ids
}
