// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// What directors run.
const (
	imbangProcess     = "imbang"     // imbang run and imbang vrrp
	keepalivedProcess = "keepalived" // imbang run and keepalived
	linuxProcess      = "linux"      // the kernel's IPVS and keepalived, in emulated machines
)

var processes = []string{imbangProcess, keepalivedProcess, linuxProcess}

// withoutSync ends the name of a variant without synchronization of connections.
const withoutSync = "/no-sync"

// Variant is what both directors run.
type Variant struct {
	Process  string        // one of processes
	Interval time.Duration // of advertisements
	NoSync   bool          // connections are not synchronized
}

// DefaultVariants are those of the study.
var DefaultVariants = []string{
	"imbang@10ms", "imbang@50ms", "imbang@100ms", "imbang@1s", "imbang@50ms" + withoutSync, "keepalived@100ms", "keepalived@1s",
	"linux@100ms", "linux@1s",
}

// ParseVariant reads PROCESS@INTERVAL or PROCESS@INTERVAL/no-sync.
func ParseVariant(s string) (v Variant, err error) {
	rest, cut := strings.CutSuffix(s, withoutSync)
	v.NoSync = cut
	name, interval, has := strings.Cut(rest, "@")
	if v.Process = name; !has || !slices.Contains(processes, name) {
		return v, fmt.Errorf("variant %q: must be imbang@INTERVAL, keepalived@INTERVAL or linux@INTERVAL, such as imbang@50ms, or imbang@50ms%s", s, withoutSync)
	}
	v.Interval, err = time.ParseDuration(interval)
	if err != nil || v.Interval < 10*time.Millisecond || v.Interval > 40950*time.Millisecond || v.Interval%(10*time.Millisecond) != 0 {
		return v, fmt.Errorf("variant %q: the interval must be a multiple of 10ms, from 10ms to 40.95s", s)
	}
	return v, nil
}

// String is the inverse of ParseVariant.
func (v Variant) String() string {
	s := v.Process + "@" + v.Interval.String()
	if v.NoSync {
		s += withoutSync
	}
	return s
}

// masterDown is when a backup takes over at the latest by the protocol (RFC 9568, 6.1).
func (v Variant) masterDown() time.Duration { return 4 * v.Interval }

// machines reports whether the directors are emulated machines.
func (v Variant) machines() bool { return v.Process == linuxProcess }

// onMachines reports whether the variant of a name has directors that are machines.
func onMachines(name string) bool {
	v, err := ParseVariant(name)
	return err == nil && v.machines()
}
