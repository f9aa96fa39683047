// SPDX-License-Identifier: Apache-2.0

package own

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
)

// signer makes and checks the tag at the end of a datagram: HMAC-SHA256 (RFC 2104),
// truncated to 16 bytes.
type signer struct {
	h   hash.Hash
	sum [sha256.Size]byte
}

func newSigner(key []byte) *signer { return &signer{h: hmac.New(sha256.New, key)} }

func (s *signer) tag(b []byte) []byte {
	s.h.Reset()
	s.h.Write(b)
	return s.h.Sum(s.sum[:0])[:tagSize]
}

// sign appends the tag of all that is in b.
func (s *signer) sign(b []byte) []byte { return append(b, s.tag(b)...) }

// verify checks a datagram, in a time that does not depend on the tag.
func (s *signer) verify(b []byte) bool {
	end := len(b) - tagSize
	return end >= 0 && subtle.ConstantTimeCompare(s.tag(b[:end]), b[end:]) == 1
}
