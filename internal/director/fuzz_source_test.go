// SPDX-License-Identifier: Apache-2.0

package director

import (
	"crypto/sha256"
	"math/rand/v2"
)

// source makes choices of a fuzzer's bytes; where they end, of numbers that
// are random, but always the same for the same bytes.
type source struct {
	data []byte
	rest *rand.ChaCha8
}

func newSource(data []byte) *source {
	return &source{data, rand.NewChaCha8(sha256.Sum256(data))}
}

func (s *source) byte() byte {
	if len(s.data) == 0 {
		return byte(s.rest.Uint64())
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// n is a number below a limit.
func (s *source) n(limit int) int {
	if limit <= 1 {
		return 0
	}
	v := int(s.byte())
	for most := 256; most < limit; most <<= 8 {
		v = v<<8 | int(s.byte())
	}
	return v % limit
}

// once is true once in so many times.
func (s *source) once(in int) bool { return s.n(in) == in-1 }

// bytes are the next ones of the fuzzer's own, or random ones.
func (s *source) bytes(n int) []byte {
	own := s.data[:min(n, len(s.data))]
	s.data = s.data[len(own):]
	b := append(make([]byte, 0, n), own...)[:n]
	s.rest.Read(b[len(own):])
	return b
}

func among[T any](s *source, of ...T) T { return of[s.n(len(of))] }
