// SPDX-License-Identifier: Apache-2.0

package pair

import "time"

// Clock compares the peer's clock with this director's, as of the last exchange.
type Clock struct {
	Ahead  time.Duration // of this director's; negative: behind
	Within time.Duration // by how much Ahead may be wrong: half of the time that the exchange took
}

// clockOf compares clocks by an exchange: the peer read its own one between the two times.
func clockOf(sent, heard, told time.Time) *Clock {
	if told.IsZero() { // an earlier version does not say it
		return nil
	}
	half := max(heard.Sub(sent), 0) / 2
	return &Clock{Ahead: told.Sub(sent.Add(half)), Within: half}
}
