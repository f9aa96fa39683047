// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// oneServer is the share from which a scheduler counts as having used one
// server only.
const oneServer = 0.999

// surprising is how improbable it must be, that so few different keys all
// fall on one server, to be no matter of few keys.
const surprising = 0.001

// hashed says what a scheduler looks at to choose a server.
var hashed = map[string]struct {
	what    string // in the plural
	differ  func(record.Condition, *study.Study) int
	spreads bool // under overload
}{
	"dh":      {what: "virtual addresses", differ: virtualAddresses},
	"lblc":    {what: "virtual addresses", differ: virtualAddresses, spreads: true},
	"lblcr":   {what: "virtual addresses", differ: virtualAddresses, spreads: true},
	"sh":      {what: "client addresses", differ: clientAddresses},
	"mh":      {what: "client addresses", differ: clientAddresses},
	"source":  {what: "client addresses", differ: clientAddresses},
	"hash":    {what: "client addresses", differ: clientAddresses},
	"ip_hash": {what: "networks of clients (the first three bytes of an IPv4 address)", differ: clientNetworks},
	"uri":     {what: "paths", differ: paths},
}

// virtualAddresses is how many connections go to.
func virtualAddresses(_ record.Condition, s *study.Study) int { return s.VirtualAddresses }

// clientAddresses is how many connections come from. Other tools use one. A user
// of a closed loop keeps its address, so there are no more of them than users.
func clientAddresses(c record.Condition, s *study.Study) int {
	switch {
	case c.Tool != study.BuiltIn:
		return 1
	case c.Closed():
		return min(s.ClientAddresses, c.Users)
	}
	return s.ClientAddresses
}

// clientNetworks is how many different values the first three bytes have:
// each client namespace takes its addresses one after the other.
func clientNetworks(c record.Condition, s *study.Study) int {
	n := clientAddresses(c, s)
	if c.Family != string(topology.IPv4) || n == 1 {
		return n
	}
	const ofOne = 254 // addresses that share their first three bytes
	namespaces := min(n, s.ClientNamespaces)
	each := (n + namespaces - 1) / namespaces
	return namespaces * ((each + ofOne - 1) / ofOne)
}

// paths is how many there are, or more than can be counted.
func paths(c record.Condition, s *study.Study) int {
	i := slices.IndexFunc(s.Load.Calls, func(call study.Call) bool { return call.Name == c.Call })
	if i < 0 {
		return math.MaxInt32
	}
	path, _, _ := strings.Cut(s.Load.Calls[i].Path, "?")
	switch {
	case strings.Contains(path, "{n}"):
		return math.MaxInt32
	case strings.Contains(path, "{url}"):
		return max(1, s.Load.URLs)
	}
	return 1
}

// oneAddress reports whether a scheduler had too few addresses to look at, by
// the plan and by what the servers answered, and says so. Such a cell measures
// one server and not the scheduler.
func oneAddress(c Cell, condition record.Condition, s *study.Study) (string, bool) {
	h, ok := hashed[c.Scheduler]
	if !ok || c.Servers < 2 {
		return "", false
	}
	n := h.differ(condition, s)
	server, share := favourite(c)
	switch {
	case server == "" && n == 1 && !h.spreads: // nobody knows, but it cannot be otherwise
		return fmt.Sprintf("it looks at %s, and there is one", h.what), true
	case share < oneServer:
		return "", false
	case n == 1:
		return fmt.Sprintf("it looks at %s, and there is one: %s answered all", h.what, server), true
	case math.Pow(float64(c.Servers), float64(1-n)) > surprising:
		return fmt.Sprintf("it looks at %s, and there are %d, which all fell on %s", h.what, n, server), true
	}
	return "", false
}

// favourite is the server with the most replies.
func favourite(c Cell) (name string, share float64) {
	for server, x := range c.Spread {
		if x > share || x == share && server < name {
			name, share = server, x
		}
	}
	return name, share
}
