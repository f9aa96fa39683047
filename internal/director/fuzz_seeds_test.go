// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// seed adds scripts of random bytes, which play every kind of packet.
func (w *fuzzWorld) seed(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		data := make([]byte, random.IntN(64))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		f.Add(binary.BigEndian.AppendUint16(data, uint16(i)))
	}
	f.Cleanup(func() {
		if !f.Failed() {
			w.drain(f)
		}
	})
}
