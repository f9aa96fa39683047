// SPDX-License-Identifier: Apache-2.0

package vrrp

// Reason is why a packet was refused.
type Reason uint8

// Reasons, in the order of the checks.
const (
	Accepted          Reason = iota
	ReasonTruncated          // shorter than the header and its addresses
	ReasonVersion            // not version 3
	ReasonType               // not an advertisement
	ReasonRouter             // of another virtual router
	ReasonHopLimit           // TTL or hop limit is not 255, and not by unicast
	ReasonDestination        // multicast where unicast is configured, or the other way round
	ReasonCount              // without an address
	ReasonLength             // longer than its addresses
	ReasonChecksum           // wrong by both methods
	ReasonInterval           // an interval of 0
	ReasonAddress            // an address that is unspecified or multicast
	reasons
)

var reasonNames = [reasons]string{
	"accepted", "truncated", "version", "type", "router", "hop limit", "destination", "count", "length", "checksum",
	"interval", "address",
}

func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// Reasons are all reasons, for the names of counters.
func Reasons() (all []Reason) {
	for r := Accepted + 1; r < reasons; r++ {
		all = append(all, r)
	}
	return all
}

// Refused counts refused packets by Reason.
type Refused [reasons]uint64
