// SPDX-License-Identifier: Apache-2.0

package rng

import (
	"encoding/binary"
	"math/rand/v2"
)

// Stream is a source of randomness of its own for each seed and stream, however
// near they lie to others: seeds and streams are the key of a cipher
// (ChaCha8). A generator whose state is the seed gives alike sequences to
// alike seeds, which repeats number from 1.
func Stream(seed uint64, stream ...uint64) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	for i, s := range stream {
		binary.LittleEndian.PutUint64(key[8*(i+1):], s) // no more than three
	}
	return rand.New(rand.NewChaCha8(key))
}

// Seed is the n-th seed that follows of another.
func Seed(seed, n uint64) uint64 { return Stream(seed, n, ^uint64(0)).Uint64() }
