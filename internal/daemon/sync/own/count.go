// SPDX-License-Identifier: Apache-2.0

package own

// Reason is why a datagram or a record was not used.
type Reason uint8

// Reasons. Up to ReasonWindow they are found without an HMAC.
const (
	accepted         Reason = iota
	ReasonLength            // too short, too long, or not of the length of its kind
	ReasonForeign           // not of this protocol
	ReasonVersion           // of another version
	ReasonKind              // of an unknown kind, or not for this role
	ReasonGroup             // of another group
	ReasonSession           // of a session that is not followed
	ReasonReplayed          // was received before, or is older than one that was
	ReasonWindow            // too far ahead, or in front of a bulk transfer; it is requested again
	ReasonForged            // its tag is wrong
	ReasonUnproved          // a welcome that answers no challenge of the last seconds
	ReasonUnknown           // an acknowledgement of a receiver that is not known
	ReasonLimited           // right, but over a limit of rate or number
	ReasonMalformed         // authentic, but with a record that cannot be read
	ReasonUndefined         // a record with an undefined service
	ReasonUnsendable        // of an entry to send: it does not fit the format
	ReasonRole              // of a director of a pair to a master or a backup, or the other way round
	reasons
)

var reasonNames = [reasons]string{
	"accepted", "length", "foreign", "version", "kind", "group", "session", "replayed", "window", "forged", "unproved",
	"unknown", "limited", "malformed", "undefined", "unsendable", "role",
}

func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// Reasons are all reasons, for those who export the counters.
func Reasons() (all []Reason) {
	for r := accepted + 1; r < reasons; r++ {
		all = append(all, r)
	}
	return all
}

// Counts are the counters of a sender or a receiver since it was made.
type Counts struct {
	Refused [reasons]uint64 // by Reason

	Datagrams uint64 // sent by a sender or accepted by a receiver, of the numbered ones
	Repeated  uint64 // sent again, or requested again
	Entries   uint64 // sent or applied
	Deletions uint64 // likewise
	Bulks     uint64 // bulk transfers begun
	Refreshes uint64 // entries sent because their copies grow old
	Swept     uint64 // entries that the sender does not have, and that were put out to be removed
}

// Add is the sum of counters.
func (c Counts) Add(o Counts) Counts {
	for i, n := range o.Refused {
		c.Refused[i] += n
	}
	c.Datagrams += o.Datagrams
	c.Repeated += o.Repeated
	c.Entries += o.Entries
	c.Deletions += o.Deletions
	c.Bulks += o.Bulks
	c.Refreshes += o.Refreshes
	c.Swept += o.Swept
	return c
}
