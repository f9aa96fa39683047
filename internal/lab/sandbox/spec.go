// SPDX-License-Identifier: Apache-2.0

// Package sandbox builds clusters that stay after the command that built them
// has ended, for people who try imbang without hardware: clients, a director
// and web servers in network namespaces.
//
// A cluster has a name. Its namespaces are imbang-up-NAME-ROLE, its files lie in
// /run/imbang-lab/NAME. Both follow from the name alone, so Down also removes
// what an Up that was killed has left. The prefix differs from topology.Prefix,
// so that no sweep of crashed runs removes a cluster that stays.
//
// The package owns the namespaces, web servers and files of these clusters. It
// measures nothing.
package sandbox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"imbang/internal/lab/topology"
	"imbang/internal/model"
)

// Forwarding is a forwarding method, by the word of the command line.
type Forwarding string

// The forwarding methods.
const (
	NAT Forwarding = "nat" // masquerading
	DR  Forwarding = "dr"  // direct routing
	TUN Forwarding = "tun" // IP in IP
)

// Forwardings lists them.
var Forwardings = []Forwarding{NAT, DR, TUN}

// option is ipvsadm's option of a forwarding method.
func (f Forwarding) option() string {
	return map[Forwarding]string{NAT: "-m", DR: "-g", TUN: "-i"}[f]
}

// Limits of a cluster.
const (
	MaxServers = 64
	MaxClients = 14 // so many networks of addresses fit into 10.10.0.0/16
)

// Spec says what a cluster consists of.
type Spec struct {
	Name       string            `json:"name"`
	Clients    int               `json:"clients"`
	Servers    int               `json:"servers"`
	Forwarding Forwarding        `json:"forwarding"`
	Families   []topology.Family `json:"families"`
	Scheduler  string            `json:"scheduler"`
	Empty      bool              `json:"empty"` // no director is attached and no service is added
}

// nameForm has no hyphen, so that the name of a namespace names one cluster
// only, and begins with a letter, so that no sweep takes it for a process id.
var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`) })

// CheckName refuses what cannot name a cluster.
func CheckName(name string) error {
	if !nameForm().MatchString(name) {
		return fmt.Errorf("cluster name %q: must be 1 to 32 characters, the first a lower-case letter, the others lower-case letters, digits and underscores", name)
	}
	return nil
}

// Check refuses what cannot be built.
func (s Spec) Check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	switch {
	case s.Servers < 1 || s.Servers > MaxServers:
		return fmt.Errorf("--servers %d: must be 1 to %d", s.Servers, MaxServers)
	case s.Clients < 1 || s.Clients > MaxClients:
		return fmt.Errorf("--clients %d: must be 1 to %d", s.Clients, MaxClients)
	case !slices.Contains(Forwardings, s.Forwarding):
		return fmt.Errorf("--forwarding %q: must be nat, dr or tun", s.Forwarding)
	}
	if _, ok := model.SchedulerNamed(s.Scheduler); !ok {
		return fmt.Errorf("--scheduler %q: must be one of %s", s.Scheduler, strings.Join(model.SchedulerNames(), ", "))
	}
	return nil
}

// same reports whether two clusters are built alike.
func (s Spec) same(t Spec) bool {
	return s.Name == t.Name && s.Clients == t.Clients && s.Servers == t.Servers && s.Forwarding == t.Forwarding &&
		slices.Equal(s.Families, t.Families) && s.Scheduler == t.Scheduler && s.Empty == t.Empty
}

// String is the spec in options of `imbang-lab up`.
func (s Spec) String() string {
	family := "both"
	if len(s.Families) == 1 {
		family = string(s.Families[0])
	}
	text := fmt.Sprintf("--clients %d --servers %d --forwarding %s --family %s --scheduler %s", s.Clients, s.Servers, s.Forwarding, family, s.Scheduler)
	if s.Empty {
		text += " --empty"
	}
	return text
}
