// SPDX-License-Identifier: Apache-2.0

package director

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// So many half-open connections are a SYN flood: an eighth of those that there
// is room for, but never more than a busy director has of honest clients.
const (
	mostHalfOpen  = 16384
	halfOpenShare = 8
)

// halfOpenLimit goes by the room for connections; without any, nothing is an
// attack.
func halfOpenLimit(room uint32) uint32 { return min(room/halfOpenShare, mostHalfOpen) }

// initSecret writes a random key.
func initSecret(m *ebpf.Map) error {
	var key [16]byte
	rand.Read(key[:]) // never fails
	return editConfig(m, func(c *bpfobj.LbConfigTable) {
		for i := range c.Secret.Word {
			c.Secret.Word[i] = binary.NativeEndian.Uint64(key[8*i:])
		}
	})
}

// Attack is what the director knows of SYN floods.
type Attack struct {
	Now        bool      `json:"now"`
	Count      uint32    `json:"count"` // so far
	Began      time.Time `json:"began,omitzero"`
	Ended      time.Time `json:"ended,omitzero"` // the last one that has
	HalfOpen   uint64    `json:"half_open"`      // connections, about
	Limit      uint32    `json:"half_open_limit"`
	Challenged uint64    `json:"challenged"`       // SYNs
	Rate       float64   `json:"challenged_per_s"` // now
	Proofs     uint64    `json:"proofs"`           // right answers
	Proven     int       `json:"proven_clients"`   // that are remembered
	Defended   bool      `json:"defended"`         // the setting syn_defence says to
}

// state is what programs write, of which there is one.
func (d *Director) state() (s bpfobj.LbStateTable, err error) {
	if err := d.maps.State.Lookup(uint32(0), &s); err != nil {
		return s, fmt.Errorf("read the state of attacks and defences: %w", err)
	}
	return s, nil
}

// handshakes are the counts of all CPUs.
func (d *Director) handshakes() (sum bpfobj.LbHandshakeCounts, err error) {
	var perCPU []bpfobj.LbHandshakeCounts
	if err := d.maps.Handshakes.Lookup(uint32(0), &perCPU); err != nil {
		return sum, fmt.Errorf("read the counts of handshakes: %w", err)
	}
	for _, h := range perCPU {
		sum.Opened += h.Opened
		sum.Answered += h.Answered
		sum.Challenged += h.Challenged
		sum.Proofs += h.Proofs
		sum.Displaced += h.Displaced
	}
	return sum, nil
}

// Fixed points of bpf/types.h.
const (
	halfOpenScale = 1 << 10
	rateScale     = 1 << 8
)

// Attack reads it.
func (d *Director) Attack() (Attack, error) {
	set, err := d.config()
	if err != nil {
		return Attack{}, err
	}
	state, err := d.state()
	if err != nil {
		return Attack{}, err
	}
	a := state.Attack
	counts, err := d.handshakes()
	if err != nil {
		return Attack{}, err
	}
	proven, _, err := hashAll[bpfobj.LbAddress, bpfobj.LbProof](d.maps.Proofs, hashBatch)
	if err != nil {
		return Attack{}, fmt.Errorf("read the proven clients: %w", err)
	}
	began, err := wallTime(a.Began)
	if err != nil {
		return Attack{}, err
	}
	ended, err := wallTime(a.Ended)
	return Attack{
		Now: a.Since != 0, Count: a.Number, Began: began, Ended: ended,
		HalfOpen: a.HalfOpen / halfOpenScale, Limit: set.HalfOpenLimit,
		Challenged: counts.Challenged, Rate: float64(a.Rate) / rateScale, Proofs: counts.Proofs,
		Proven: len(proven), Defended: set.SynDefence != 0,
	}, err
}

// wallTime is when the kernel's clock was so [ns]; 0 is no time.
func wallTime(at uint64) (time.Time, error) {
	if at == 0 {
		return time.Time{}, nil
	}
	now, err := monotonic()
	return time.Now().Add(time.Duration(int64(at) - int64(now))), err
}
