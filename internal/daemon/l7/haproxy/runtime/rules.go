// SPDX-License-Identifier: Apache-2.0

package runtime

import "fmt"

// Version is that of HAProxy.
type Version interface {
	AtLeast(major, minor int) bool
}

// Rule says how a change is carried out.
type Rule struct {
	Change  string // such as "A server is added"
	Command string // of the runtime socket; "": there is none
	When    string // the condition for a reload; "": always if there is no command, else never
	// Major and Minor are the first version that needs no reload; 0: all versions do.
	Major, Minor int
	// Probe is how HAProxy was asked; without it there is nothing to ask.
	Probe *Probe
}

// Probe is a question to HAProxy.
type Probe struct {
	Backend  []string // lines of a backend `probe` with a server s1
	Commands []string // the last one is the question
	Refusal  string   // is part of the reply of versions that need a reload
}

// Needed is true if the rule holds for a version.
func (r *Rule) Needed(v Version) bool { return r.Major == 0 || !v.AtLeast(r.Major, r.Minor) }

// Versions says for which the rule holds.
func (r *Rule) Versions() string {
	if r.Major == 0 {
		return "all"
	}
	return fmt.Sprintf("before %d.%d", r.Major, r.Minor)
}

const (
	addServer  = "add server"
	ready      = "balance roundrobin"
	server     = "server s1 127.0.0.1:9 weight 2"
	maintained = "set server probe/s1 state maint"
)

// Rules that changes.go goes by.
var (
	ruleCookie = Rule{
		Change: "A server is added", Command: addServer, When: "the backend has a cookie", Major: 3, Minor: 0,
		Probe: &Probe{[]string{ready, "cookie SRV insert", server + " cookie s1"}, []string{"add server probe/s2 127.0.0.1:9 cookie s2"}, "'cookie' option is not accepted for dynamic server"},
	}
	ruleAuthority = Rule{
		Change: "A server is added", Command: addServer, When: "the backend verifies certificates and had no server, so that the file of authorities is not loaded",
		Probe: &Probe{[]string{ready, server}, []string{"add server probe/s2 127.0.0.1:9 ssl verify required ca-file /etc/ssl/certs/ca-certificates.crt"}, "unable to load"},
	}
	rulePosition = Rule{Change: "A server is added", Command: addServer, When: "the method is first, and the server is not the last one"}
	ruleReferred = Rule{
		Change: "A server is removed", Command: "set server state maint, del server", When: "raw lines of the backend name servers (use-server, track)",
		Probe: &Probe{[]string{ready, "use-server s1 if { path /x }", server}, []string{maintained, "del server probe/s1"}, "This server cannot be removed at runtime due to other configuration elements pointing to it"},
	}
	ruleNumbers = Rule{Change: "A server is removed", Command: "set server state maint", When: "the method is first, which goes by the numbers of servers: those behind it change"}
	ruleBackup  = Rule{Change: "A server becomes a backup, or is none any more"}
	ruleOrder   = Rule{Change: "The order of servers changes", When: "the method is first"}
)

// Rules are all of them, in the order of the documentation.
func Rules() []Rule {
	return []Rule{
		{Change: "A verdict, or a drain of a server", Command: "set server state, shutdown sessions server"},
		{Change: "This node is drained, whose clients of HTTP/2 are told to go by a process that ends"},
		{Change: "This node is enabled again", Command: "set server state"},
		{Change: "A weight changes", Command: "set server weight"},
		{Change: "A server's address or port changes", Command: "set server addr port"},
		{Change: "A server's limit of connections changes", Command: "set maxconn server"},
		{Change: "A server is added", Command: addServer},
		ruleCookie, ruleAuthority, rulePosition,
		{Change: "A server is removed", Command: "set server state maint, del server (once it has no connections)"},
		ruleReferred, ruleNumbers, ruleBackup, ruleOrder,
		{Change: "A certificate's file has a new certificate", Command: "set ssl cert, commit ssl cert"},
		{Change: "A file of authorities or a page has another text"},
		{Change: "A certificate is added or removed"},
		{Change: "Anything else of a backend"},
		{Change: "Anything of a listener"},
		{Change: "Anything of the process"},
	}
}
