// SPDX-License-Identifier: Apache-2.0

package load

import "strings"

// noServer is the index of a reply that names no server.
const noServer int32 = -1

// maxNames bounds the distinct names one client keeps: a header that is
// different in every reply (a date, a request id) must not eat the memory.
const maxNames = 1024

// otherName counts the servers beyond maxNames.
const otherName = "(other)"

// names numbers the values of the server header. Looking up a known value
// does not allocate.
type names struct {
	header string // lower case; empty looks for none
	byName map[string]int32
	list   []string
}

func newNames(header string) *names {
	return &names{header: strings.ToLower(header), byName: map[string]int32{}}
}

// index is the number of a name, new or known; noServer for an empty one.
func (n *names) index(name []byte) int32 {
	if len(name) == 0 {
		return noServer
	}
	if i, ok := n.byName[string(name)]; ok {
		return i
	}
	s := string(name)
	if len(n.list) >= maxNames {
		s = otherName
		if i, ok := n.byName[s]; ok {
			return i
		}
	}
	i := int32(len(n.list))
	n.byName[s] = i
	n.list = append(n.list, s)
	return i
}
