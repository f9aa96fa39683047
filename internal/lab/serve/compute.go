// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/sha256"
	"sync/atomic"
)

// hashedBytes is what one unit of a server's work hashes: 1 KB.
const hashedBytes = 1024

// block is what is hashed.
var block [hashedBytes]byte

// hashed takes the result of the work, so that the compiler cannot drop it.
var hashed atomic.Uint32

// compute does a fixed amount of work on the CPU: units SHA-256 hashes of 1 KB,
// each of the one before it. How long that takes is the machine's speed.
func compute(units int) {
	if units == 0 {
		return
	}
	b := block
	var sum [sha256.Size]byte
	for range units {
		sum = sha256.Sum256(b[:])
		copy(b[:], sum[:])
	}
	hashed.Store(uint32(sum[0]))
}
