// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// skewAfter is how long a difference between configurations has to last: a change reaches
// two directors one after the other.
const skewAfter = 5 * time.Second

// skew compares the sender's configuration with the receiver's.
type skew struct {
	own      map[pair]uint64 // what each pair is compared by; nil: not given
	known    bool            // the sender's is complete, with as many definitions
	count    int
	at       time.Duration // when to compare; 0: nothing changed
	reported []string
}

// SetServices gives the receiver's own configuration, at first and when it changes.
func (r *Receiver) SetServices(now time.Duration, services []Service, out *Output) {
	r.skew.own = map[pair]uint64{}
	eachPair(services, func(d definition) { r.skew.own[d.pair] = d.sum })
	r.skew.at = now + skewAfter
	r.due(now, out)
}

// compare reports differences that lasted.
func (r *Receiver) compare(now time.Duration, out *Output) {
	s := &r.skew
	if s.at == 0 || now < s.at {
		return
	}
	s.at = 0
	if s.own == nil || !s.known {
		return
	}
	differences, complete := r.differences()
	if !complete || slices.Equal(differences, s.reported) {
		return
	}
	s.reported = differences
	kind := EventSkew
	if len(differences) == 0 {
		kind = EventSkewEnded
	}
	out.Events = append(out.Events, Event{Kind: kind, Peer: r.peer, ID: r.session, Differences: differences})
}

// OnlyHere names, in order, what this director has and the sender does not. It does not wait as
// long as EventSkew for a difference to last; nil: that is not known.
func (r *Receiver) OnlyHere() (list []string) {
	theirs, complete := r.theirs()
	if !r.following || !complete || r.skew.own == nil {
		return nil
	}
	for _, p := range onlyIn(r.skew.own, theirs) {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return list
}

// Without returns what reports of a service (with the zero server), or of a server of one, whether
// the sender does not have it either; nil: its configuration is not known.
func (r *Receiver) Without() func(service model.ServiceKey, server netip.AddrPort) bool {
	theirs, complete := r.theirs()
	if !r.following || !complete {
		return nil
	}
	return func(service model.ServiceKey, server netip.AddrPort) bool {
		_, has := theirs[pair{service, server}]
		return !has
	}
}

// theirs is what the sender has told of its configuration, by what each pair is compared by; not
// complete if definitions are missing.
func (r *Receiver) theirs() (theirs map[pair]uint64, complete bool) {
	theirs = map[pair]uint64{}
	for _, d := range r.definitions {
		if d.configured {
			theirs[d.pair] = d.sum
		}
	}
	return theirs, r.skew.known && len(theirs) == r.skew.count
}

// onlyIn are the pairs that one configuration has and another one does not; of a missing service
// not each server.
func onlyIn(from, other map[pair]uint64) (list []pair) {
	for p := range from {
		_, has := other[p]
		_, service := other[pair{service: p.service}]
		if !has && (service || !p.server.IsValid()) {
			list = append(list, p)
		}
	}
	return list
}

// differences names what is not the same, in order; not complete if definitions of the
// sender are missing.
func (r *Receiver) differences() (list []string, complete bool) {
	theirs, complete := r.theirs()
	for _, p := range onlyIn(theirs, r.skew.own) {
		list = append(list, p.String()+": only the sender has it")
	}
	for _, p := range onlyIn(r.skew.own, theirs) {
		list = append(list, p.String()+": only this director has it")
	}
	for p, sum := range theirs {
		if own, ok := r.skew.own[p]; ok && own != sum {
			list = append(list, p.String()+": differs")
		}
	}
	slices.Sort(list)
	return list, complete
}
