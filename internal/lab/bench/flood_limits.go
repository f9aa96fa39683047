// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// FloodLimits are the sizes of the tables of connections; 0 of those that take
// no part.
type FloodLimits struct {
	Imbang           int `json:"imbang_max_connections,omitempty"`
	ConntrackMax     int `json:"nf_conntrack_max,omitempty"`
	ConntrackBuckets int `json:"nf_conntrack_buckets,omitempty"`
	IPVSTableBits    int `json:"ip_vs_conn_tab_bits,omitempty"`
}

// Of the whole machine.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/proc/sys/net/netfilter/nf_conntrack_buckets"
	ipvsTableBits    = "/sys/module/ip_vs/parameters/conn_tab_bits"
)

// connections is how many every table has room for, at least.
func (f *flood) connections() int { return max(1<<16, 2*f.Flows) }

// widen makes room in the tables that are the machine's, and notes the sizes
// of all. What it changes is as it was after restore.
func (f *flood) widen(list []competitor) (restore func(), err error) {
	l := &f.result.Limits
	var undo []func()
	restore = func() {
		for _, u := range undo {
			u()
		}
	}
	for _, c := range list {
		if c.engine == imbangEngine {
			l.Imbang = f.connections()
		}
		switch c.name {
		case ipvs:
			l.IPVSTableBits, err = readNumber(ipvsTableBits)
		case nftables, nftFlow:
			for path, limit := range map[string]*int{conntrackBuckets: &l.ConntrackBuckets, conntrackMax: &l.ConntrackMax} {
				back, failed := raise(path, f.connections(), limit)
				undo, err = append(undo, back), errors.Join(err, failed)
			}
		}
		if err != nil {
			restore()
			return nil, err
		}
	}
	return restore, nil
}

// raise makes a limit no less than that, and reads it.
func raise(path string, least int, limit *int) (back func(), err error) {
	back = func() {}
	was, err := readNumber(path)
	if errors.Is(err, fs.ErrNotExist) {
		return back, nil // connections are not tracked yet: the kernel's default
	}
	if err == nil && was < least {
		if err = os.WriteFile(path, []byte(strconv.Itoa(least)), 0); err != nil {
			return back, fmt.Errorf("make room for %d tracked connections: %w", least, err)
		}
		back = func() { _ = os.WriteFile(path, []byte(strconv.Itoa(was)), 0) } // it could be written before
	}
	if err == nil {
		*limit, err = readNumber(path)
	}
	return back, err
}

func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
