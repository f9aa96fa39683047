// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/sync/own"
)

// AlarmName says what is wrong.
type AlarmName string

// Names of alarms.
const (
	TwoMasters    AlarmName = "two-masters"   // another master sends to the group
	Configuration AlarmName = "configuration" // services or servers differ from the master's
	NoReceiver    AlarmName = "no-receiver"   // of a master: a backup is silent, or there is none
	NoMaster      AlarmName = "no-master"     // of a backup
	NotEntered    AlarmName = "not-entered"   // of a backup: it cannot enter entries of the master
	Traffic       AlarmName = "traffic"       // of a backup: packets of clients come to it
	WrongKey      AlarmName = "key"           // a director's datagrams are signed with another key
	NoPeer        AlarmName = "no-peer"       // of a pair: the other director does not answer
	OtherRole     AlarmName = "role"          // a director is of a pair, and this one is not, or the other way round
)

// AlarmNames are all names.
func AlarmNames() []AlarmName {
	return []AlarmName{TwoMasters, Configuration, NoReceiver, NoMaster, NotEntered, Traffic, WrongKey, NoPeer, OtherRole}
}

// Alarm is a fault that lasts.
type Alarm struct {
	Name AlarmName
	Text string // one line, without a number that changes while the fault lasts
}

const (
	// lonely is for how long a role may be without other directors.
	lonely = 5 * time.Second
	// mastersLast is for how long an alarm of two masters lasts after a report: those are
	// 10 s apart.
	mastersLast = 25 * time.Second
	// forgedLast is for how long an alarm of another key lasts after a datagram. The other
	// director sends several in that time.
	forgedLast = 10 * time.Second
	// roleLast is for how long an alarm of another role lasts after a datagram.
	roleLast = 10 * time.Second
	// mostForgers bounds the alarms of another key where any address may be one of the
	// group's: the sender chooses the address in a datagram.
	mostForgers = 8
	// differencesShown are in an alarm's text; State has all.
	differencesShown = 3
)

// alarms are those that are raised.
type alarms struct{ list []raised }

type raised struct {
	Alarm
	peer netip.AddrPort
	at   time.Duration // it was raised last
}

func (a *alarms) raise(now time.Duration, name AlarmName, peer netip.AddrPort, text string) {
	a.clear(name, peer)
	a.list = append(a.list, raised{Alarm{name, text}, peer, now})
	slices.SortFunc(a.list, func(x, y raised) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), x.peer.Compare(y.peer))
	})
}

func (a *alarms) clear(name AlarmName, peer netip.AddrPort) {
	a.list = slices.DeleteFunc(a.list, func(r raised) bool { return r.Name == name && r.peer == peer })
}

func (a *alarms) has(name AlarmName) bool {
	return slices.ContainsFunc(a.list, func(r raised) bool { return r.Name == name })
}

// renew notes that what is raised lasts; false: it is not raised.
func (a *alarms) renew(now time.Duration, name AlarmName, peer netip.AddrPort) bool {
	i := slices.IndexFunc(a.list, func(r raised) bool { return r.Name == name && r.peer == peer })
	if i >= 0 {
		a.list[i].at = now
	}
	return i >= 0
}

func (a *alarms) count(name AlarmName) (n int) {
	for _, r := range a.list {
		if r.Name == name {
			n++
		}
	}
	return n
}

// expire ends alarms that are not reported any more.
func (a *alarms) expire(now time.Duration) {
	a.list = slices.DeleteFunc(a.list, func(r raised) bool {
		return r.Name == TwoMasters && now-r.at > mastersLast || r.Name == WrongKey && now-r.at > forgedLast ||
			r.Name == OtherRole && now-r.at > roleLast
	})
}

func (a *alarms) all() (list []Alarm) {
	for _, r := range a.list {
		list = append(list, r.Alarm)
	}
	return list
}

// alarm raises or clears what an event says.
func (r *Replica) alarm(e own.Event) {
	now := r.now()
	switch e.Kind {
	case own.EventTwoMasters:
		text := fmt.Sprintf("%s is a master of the same group, too: one of them must be a backup", e.Peer)
		if r.pair != nil {
			text = fmt.Sprintf("%s sends to this director, too: a pair is of two directors; use another group", e.Peer)
		}
		r.alarms.raise(now, TwoMasters, e.Peer, text)
	case own.EventOtherRole:
		host := netip.AddrPortFrom(e.Peer.Addr(), 0)
		if r.alarms.renew(now, OtherRole, host) {
			return
		}
		text := fmt.Sprintf("%s has the role pair, and this director the role %s: both directors of a pair need the role pair", e.Peer.Addr(), r.config.Role)
		if r.pair != nil {
			text = fmt.Sprintf("%s does not have the role pair, which both directors of a pair need: change role there, or here", e.Peer.Addr())
		}
		r.alarms.raise(now, OtherRole, host, text)
	case own.EventFollowing:
		// It took over before the silence of the master that was followed was noticed.
		r.alarms.clear(TwoMasters, e.Peer)
	case own.EventSkew:
		r.state.Differences = described(e.Differences, r.config.Role, e.Peer)
		r.alarms.raise(now, Configuration, netip.AddrPort{}, fmt.Sprintf("services or servers differ from those of %s %s: %s", r.config.Role.from(), e.Peer, some(r.state.Differences)))
	case own.EventSkewEnded:
		r.state.Differences = nil
		r.alarms.clear(Configuration, netip.AddrPort{})
	case own.EventReceiverLost:
		if r.pair != nil {
			return // watch raises NoPeer
		}
		for _, one := range r.sender.Receivers() {
			if one.Addr == e.Peer {
				return // it was started anew, with another number
			}
		}
		r.alarms.raise(now, NoReceiver, e.Peer, fmt.Sprintf("the backup %s does not answer", e.Peer))
	case own.EventReceiverJoined:
		r.alarms.clear(NoReceiver, e.Peer)
	}
}

// forged notes a datagram whose tag is wrong, if its sender may be a director of the group.
func (r *Replica) forged(now time.Duration, from netip.AddrPort) {
	host := netip.AddrPortFrom(from.Addr(), 0)
	if r.alarms.renew(now, WrongKey, host) {
		return // a flood of them costs no more than this
	}
	if to := r.config.To; to[0].Addr().IsMulticast() {
		if r.alarms.count(WrongKey) >= mostForgers {
			return
		}
	} else if !slices.ContainsFunc(to, func(a netip.AddrPort) bool { return a.Addr() == host.Addr() }) {
		return
	}
	text := fmt.Sprintf("datagrams of %s are signed with another key: compare key_file of both directors (imbang reload reads a new key)", host.Addr())
	r.o.Log.Warn("replication: " + text)
	r.alarms.raise(now, WrongKey, host, text)
}

// watch raises and ends the alarms that no event tells of.
func (r *Replica) watch(now time.Duration) {
	r.alarms.expire(now)
	if r.waiting.lacking() == 0 {
		r.complete = now
		r.alarms.clear(NotEntered, netip.AddrPort{})
	} else if now-r.complete > lonely {
		text := "connections of " + r.config.Role.from() + " are not entered: " + r.waiting.reason()
		if !r.alarms.has(NotEntered) {
			r.o.Log.Warn("replication: "+text, "entries", r.waiting.lacking())
		}
		r.alarms.raise(now, NotEntered, netip.AddrPort{}, text)
	}
	name, text, accompanied := NoMaster, "no master of the group sends: is one started, with the same group and key, and reachable by UDP?", false
	switch {
	case r.pair != nil:
		name, text = NoPeer, "the other director of the pair does not answer: is its replication started, with role pair, the same group and key, and reachable by UDP?"
		accompanied = len(r.sender.Receivers()) > 0 && r.receiver.State().Following
	case r.sender != nil:
		name, text = NoReceiver, "no backup of the group answers: is one started, with the same group and key, and reachable by UDP?"
		accompanied = len(r.sender.Receivers()) > 0
	default:
		accompanied = r.receiver.State().Following
	}
	switch {
	case accompanied:
		r.accompanied = now
		r.alarms.clear(name, netip.AddrPort{})
	case now-r.accompanied > lonely && !r.alarms.has(name):
		r.alarms.raise(now, name, netip.AddrPort{}, text)
		r.o.Log.Warn("replication: " + text)
	}
}

// described says of differences what they are to an operator of the backup. The protocol
// compares a sum of what a service or server is made of, so which part differs is not known.
func described(differences []string, of Role, master netip.AddrPort) (list []string) {
	from := of.from()
	server := "differs from " + from + "'s in method, tunnel or thresholds: compare imbang ipvsadm -Sn of both"
	service := "differs from " + from + "'s in scheduler, flags, persistence timeout, netmask or engine: compare imbang ipvsadm -Sn of both"
	for _, d := range differences {
		what, how, _ := strings.Cut(d, ": ")
		switch {
		case how == "only the sender has it":
			how = fmt.Sprintf("only %s %s has it: add it here", from, master.Addr())
		case how == "only this director has it":
			how = fmt.Sprintf("%s %s does not have it: add it there, or remove it here", from, master.Addr())
		case how == "differs" && strings.Contains(what, " server "):
			how = server
		case how == "differs":
			how = service
		}
		list = append(list, what+": "+how)
	}
	return list
}

// some are the first of some differences.
func some(differences []string) string {
	text := strings.Join(differences[:min(len(differences), differencesShown)], "; ")
	if more := len(differences) - differencesShown; more > 0 {
		text += fmt.Sprintf("; %d more", more)
	}
	return text
}
