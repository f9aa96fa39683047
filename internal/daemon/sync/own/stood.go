// SPDX-License-Identifier: Apache-2.0

package own

import "time"

// leastStood is for how long a clock has to stand to be noticed: no way of a datagram becomes
// shorter by that.
const leastStood = time.Second

// stood is when the own clock last did not run, as that of a suspended machine: the sender's is
// ahead by so much more since then. To the data plane packets here from before that are as much
// younger than they are.
type stood struct {
	d  time.Duration
	at time.Duration // by the own clock
}

// note takes by how much the sender's clock has gained on the own one within ages.quickest.
// Datagrams that waited meanwhile show that little by little.
func (s *stood) note(now, gained time.Duration) {
	switch {
	case gained < leastStood:
	case now-s.at > ageWindow || s.d == 0:
		s.d, s.at = gained, now
	default:
		s.d = max(s.d, gained)
	}
}

// idle is how long ago by the own clock something was that was so long ago by the sender's: what
// was while the own one stood was when it ran again.
func (s *stood) idle(now, idle time.Duration) time.Duration {
	since := now - s.at
	if s.d == 0 || idle <= since || idle >= unknownIdle {
		return idle
	}
	return max(since, idle-s.d)
}
