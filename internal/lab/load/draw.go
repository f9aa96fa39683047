// SPDX-License-Identifier: Apache-2.0

package load

// What a number is drawn for; every purpose has its own bits.
const (
	forRequest = iota + 1
	forURL
	forTarget
)

// draw is the random bits of request n for one purpose. They depend on nothing
// else, so that every client draws what any other number of clients would
// (SplitMix64, Steele et al., OOPSLA 2014).
func draw(seed uint64, n int64, purpose uint64) uint64 {
	return mix(mix(seed+purpose*0x9e3779b97f4a7c15) + uint64(n)*0x9e3779b97f4a7c15)
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
