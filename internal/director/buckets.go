// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/bits"
	"unsafe"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Of bpf/table/buckets.h.
const (
	bucketSlots   = 14
	bucketChain   = 15
	bucketClaimed = 1 << 31
	chainLongest  = 64
)

// hashMix is hash_mix of bpf/table/hash.h.
func hashMix(h uint64) uint64 {
	const m = 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= m
	h ^= h >> 32
	h *= m
	return h ^ h>>32
}

// hashFlow is the hash of a flow: hash4 or hash6 of bpf/table/hash.h.
func hashFlow(secret *bpfobj.LbFlowSecret, flow *bpfobj.LbFlow) uint64 {
	if model.Family(flow.Family) == model.IPv6 {
		return hashWords(secret, (*[unsafe.Sizeof(*flow) / 4]uint32)(unsafe.Pointer(flow))[:])
	}
	four := toFlow4(*flow)
	return hashWords(secret, (*[unsafe.Sizeof(four) / 4]uint32)(unsafe.Pointer(&four))[:])
}

func hashWords(secret *bpfobj.LbFlowSecret, key []uint32) (sum uint64) {
	for i := 0; i < len(key); i += 2 {
		sum += uint64(key[i]+secret.Summand[i]) * uint64(key[i+1]+secret.Summand[i+1])
	}
	return hashMix(sum)
}

// tagsShift is where a bucket's control word has the first bit of the hash that is in its tags.
const tagsShift = 26

// tagOf is the upper byte of a hash's slots in a bucket with this control word.
func tagOf(hash, control uint32) uint32 {
	return hash >> (control >> tagsShift & 31) << bits.Len32(indexMask)
}

// bucketReader looks entries up as packets do. What it reads changes meanwhile.
type bucketReader struct {
	d        *Director
	blocks   *blockReader
	secret   bpfobj.LbFlowSecret
	geometry uint64
}

func (d *Director) newBucketReader() (*bucketReader, error) {
	blocks, err := d.newBlockReader()
	if err != nil {
		return nil, err
	}
	c, err := readConfig(d.maps.Config)
	if err != nil {
		return nil, err
	}
	r := &bucketReader{d: d, blocks: blocks, secret: c.Hash}
	return r, r.shape()
}

func (r *bucketReader) shape() error {
	var s bpfobj.LbShapeTable
	if err := r.d.maps.Shape.Lookup(uint32(0), &s); err != nil {
		return fmt.Errorf("read the connection table: %w", err)
	}
	r.geometry = s.Geometry
	return nil
}

// buckets is how many there are.
func (r *bucketReader) buckets() uint32 { return uint32(r.geometry) }

// bucketOf is the one that a hash belongs to.
func (r *bucketReader) bucketOf(hash uint32) uint32 {
	mask := uint32(r.geometry >> 32)
	if b := hash & mask; b < r.buckets() {
		return b
	}
	return hash & (mask >> 1)
}

// bucket copies one; nil if it is not there.
func (r *bucketReader) bucket(n uint32) (*[lineBytes / 4]uint32, error) {
	var number uint32
	if err := r.d.maps.BucketBlocks.Lookup(n/blockEntries, &number); err != nil {
		return nil, readConnections(err)
	}
	if number == 0 {
		return nil, nil
	}
	b, err := r.blocks.read(number - 1)
	if b == nil || err != nil {
		return nil, err
	}
	line := *b.bucket(1 + n%blockEntries)
	return &line, nil
}

// entry reads that of an index; nil if there is none.
func (r *bucketReader) entry(index uint32) (*entry, error) {
	index &= indexMask
	b, err := r.blocks.read(index / indexLines)
	if b == nil || err != nil {
		return nil, err
	}
	line := index % indexLines
	if by := step(b.kind()); by == 0 || line < by || line+by > blockLines || !inUse(b.conn(line)) {
		return nil, nil
	}
	e := b.entry(line)
	return &e, nil
}

// members are the indexes in a bucket, of its slots and its chain.
func (r *bucketReader) members(line *[lineBytes / 4]uint32) (slots, chain []uint32, err error) {
	for _, word := range line[1 : 1+bucketSlots] {
		if word != 0 {
			slots = append(slots, word)
		}
	}
	for at := line[bucketChain]; at != 0 && len(chain) <= chainLongest; {
		chain = append(chain, at)
		e, err := r.entry(at)
		if e == nil || err != nil {
			return slots, chain, err
		}
		at = e.Next
	}
	return slots, chain, nil
}

// find is the entry of a flow; nil if there is none. It may have missed one if its bucket was not the
// same meanwhile.
func (r *bucketReader) find(flow *bpfobj.LbFlow) (found *entry, same bool, err error) {
	hash := hashFlow(&r.secret, flow)
	if err := r.shape(); err != nil {
		return nil, false, err
	}
	n := r.bucketOf(uint32(hash))
	_, same, err = r.still(n, func(line *[lineBytes / 4]uint32) error {
		slots, chain, err := r.members(line)
		if err != nil {
			return err
		}
		for i, word := range append(slots, chain...) {
			if i < len(slots) && word&^indexMask != tagOf(uint32(hash), line[0]) {
				continue
			}
			if e, err := r.entry(word); err != nil {
				return err
			} else if e != nil && e.Flow == *flow {
				found = e
				return nil
			}
		}
		return nil
	})
	if found != nil || !same || err != nil {
		return found, same, err
	}
	// It may have been split before it was read.
	err = r.shape()
	return nil, r.bucketOf(uint32(hash)) == n, err
}

// findTries is how often a look-up is repeated that found nothing while its bucket changed.
const findTries = 64

// connOf is the entry of a client's flow; nil if there is none.
func (d *Director) connOf(flow bpfobj.LbFlow) (*entry, error) {
	r, err := d.newBucketReader()
	if err != nil {
		return nil, err
	}
	for range findTries {
		if e, same, err := r.find(&flow); e != nil || same || err != nil {
			return e, err
		}
	}
	return nil, nil
}
