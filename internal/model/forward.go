// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// Forward is how packets reach a real server.
type Forward uint8

// Forwarding methods, with the values of Linux's IP_VS_CONN_F_*.
const (
	Masquerade Forward = 0
	LocalNode  Forward = 1
	Tunnel     Forward = 2
	Route      Forward = 3
)

// method describes a forwarding method. What it does to packets is in
// bpf/forward/method.h; here is what edits, listings and checks depend on.
type method struct {
	word  string // in ipvsadm's listings
	long  string // ipvsadm's option; empty if users do not ask for it
	short byte   // 0: it has none

	repliesReturn, rewritesPort, encapsulates, sameLink, hairpins bool
}

// LocalNode is not for users to ask for: the director finds it out again from
// a server that was added with -g.
var methods = []method{
	Masquerade: {word: "Masq", long: "masquerading", short: 'm', repliesReturn: true, rewritesPort: true, hairpins: true},
	LocalNode:  {word: "Local", short: 'g'},
	Tunnel:     {word: "Tunnel", long: "ipip", short: 'i', encapsulates: true},
	Route:      {word: "Route", long: "gatewaying", short: 'g', sameLink: true},
}

func (f Forward) method() method {
	if int(f) < len(methods) {
		return methods[f]
	}
	return method{}
}

// String is the word in ipvsadm's listings.
func (f Forward) String() string {
	if word := f.method().word; word != "" {
		return word
	}
	return fmt.Sprintf("Forward(%d)", uint8(f))
}

// Known reports whether there is such a method.
func (f Forward) Known() bool { return f.method().word != "" }

// ForwardNamed is the method of a word in listings.
func ForwardNamed(word string) (Forward, bool) {
	for f, m := range methods {
		if m.word == word {
			return Forward(f), true
		}
	}
	return 0, false
}

// ForwardOption is ipvsadm's option for a forwarding method.
type ForwardOption struct {
	Forward Forward
	Long    string
	Short   byte
}

// ForwardOptions are ipvsadm's options for the methods that users can ask for.
func ForwardOptions() (options []ForwardOption) {
	for f, m := range methods {
		if m.long != "" {
			options = append(options, ForwardOption{Forward(f), m.long, m.short})
		}
	}
	return options
}

// Option is the option by which a server of this method is saved.
func (f Forward) Option() string {
	m := f.method()
	if m.short == 0 {
		return "--" + m.long
	}
	return "-" + string(rune(m.short))
}

// RepliesReturn reports whether the server's replies come through the director.
func (f Forward) RepliesReturn() bool { return f.method().repliesReturn }

// RewritesPort reports whether the server can have another port than the
// service.
func (f Forward) RewritesPort() bool { return f.method().rewritesPort }

// Encapsulates reports whether packets travel to the server inside others.
func (f Forward) Encapsulates() bool { return f.method().encapsulates }

// SameLink reports whether the server must be reached without a router between,
// and accept packets to the virtual address as they are.
func (f Forward) SameLink() bool { return f.method().sameLink }

// Hairpins reports whether the director can stand for a client that is on the
// server's own link.
func (f Forward) Hairpins() bool { return f.method().hairpins }
