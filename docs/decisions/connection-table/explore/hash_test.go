// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"math/rand/v2"
	"testing"
)

// words are a flow as flow_hash reads it: source, destination, both ports, protocol and rest.
type words [4]uint32

// mix is flow_mix of ../prototypes/bpf/flows.h.
func mix(h uint64) uint64 {
	const factor = 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= factor
	h ^= h >> 32
	h *= factor
	return h ^ h>>32
}

// hash is flow_hash.
func (w words) hash(secret words) uint64 {
	return mix(uint64(w[0]+secret[0])*uint64(w[1]+secret[1]) + uint64(w[2]+secret[2])*uint64(w[3]+secret[3]))
}

// Flows that differ in few bits, or whose words are multiples of each other, spread over parts of
// the table and over buckets.
func TestChosenFlowsSpread(t *testing.T) {
	const flows, parts, buckets = 100_000, 16, 1 << 14
	const vip, web, tcp = 0x010200c0, 0x5000, 6
	patterns := map[string]func(n uint32) words{
		"ports of few clients":      func(n uint32) words { return words{0x0a + n>>15<<24, vip, web<<16 | n&0x7fff, tcp} },
		"clients with one port":     func(n uint32) words { return words{n, vip, web<<16 | 0x0004, tcp} },
		"clients in the upper bits": func(n uint32) words { return words{n << 15, vip, web<<16 | 0x0004, tcp} },
		"source and port in step":   func(n uint32) words { return words{n, vip, web<<16 | (0xffff - n&0xffff), tcp} },
		"multiples of an address":   func(n uint32) words { return words{vip * n, vip, web<<16 | n&0xffff, tcp} },
	}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 36))
		secret := words{r.Uint32(), r.Uint32(), r.Uint32(), r.Uint32()}
		for name, pattern := range patterns {
			var inPart [parts]int
			var inBucket [buckets]int
			for n := range uint32(flows) {
				h := pattern(n).hash(secret)
				inPart[h>>32%parts]++
				inBucket[h%buckets]++
			}
			for p, n := range inPart {
				if n < flows/parts*9/10 || n > flows/parts*11/10 {
					t.Errorf("secret %d, %s: part %d has %d of %d flows", seed, name, p, n, flows)
				}
			}
			for b, n := range inBucket {
				if n > 5*flows/buckets {
					t.Errorf("secret %d, %s: bucket %d has %d flows", seed, name, b, n)
				}
			}
		}
	}
}
