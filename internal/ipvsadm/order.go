// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"net/netip"

	"imbang/internal/model"
)

// The order of listings is ipvsadm's in every detail, because scripts compare
// listings. It subtracts 32 bit words and looks at the sign of the result, so
// 202.0.0.1 comes before 10.0.0.1; this is no total order, so what comes out
// also depends on the algorithm, a merge sort of halves that prefers the left.

// wrapped is the sign of a - b in 32 bits.
func wrapped(a, b uint32) int { return int(int32(a - b)) }

func compareServices(a, b *model.ServiceStatus) int {
	if a.Key.Mark != b.Key.Mark {
		return wrapped(a.Key.Mark, b.Key.Mark)
	}
	if a.Key.Family != b.Key.Family {
		return int(a.Key.Family) - int(b.Key.Family)
	}
	if a.Key.Mark != 0 {
		return 0
	}
	if a.Key.Protocol != b.Key.Protocol {
		return int(a.Key.Protocol) - int(b.Key.Protocol)
	}
	return compareEndpoints(a.Key.Addr, a.Key.Port, b.Key.Addr, b.Key.Port)
}

// compareServers lets both families mix: an IPv4 address counts as one word
// followed by zeros.
func compareServers(a, b *model.ServerStatus) int {
	return compareEndpoints(a.Addr, a.Port, b.Addr, b.Port)
}

func compareEndpoints(a netip.Addr, aPort uint16, b netip.Addr, bPort uint16) int {
	wa, wb := words(a), words(b)
	for i := range wa {
		if d := wrapped(wa[i], wb[i]); d != 0 {
			return d
		}
	}
	return int(aPort) - int(bPort)
}

// words are the 32 bit words of an address.
func words(a netip.Addr) (w [4]uint32) {
	for i, b := range a.AsSlice() {
		w[i/4] = w[i/4]<<8 | uint32(b)
	}
	return w
}

// sortLikeLibc is glibc's qsort: a merge sort, so that an order that is no
// order gives the same listing.
func sortLikeLibc[T any](list []T, compare func(a, b *T) int) []T {
	if len(list) < 2 {
		return list
	}
	half := len(list) / 2
	left, right := sortLikeLibc(list[:half], compare), sortLikeLibc(list[half:], compare)
	merged := make([]T, 0, len(list))
	for len(left) > 0 && len(right) > 0 {
		if compare(&left[0], &right[0]) <= 0 {
			merged, left = append(merged, left[0]), left[1:]
		} else {
			merged, right = append(merged, right[0]), right[1:]
		}
	}
	return append(append(merged, left...), right...)
}
