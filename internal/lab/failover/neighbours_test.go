// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestRight(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	address, other := netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("10.10.0.250")
	client, server := entry{0, address}, entry{1, address}
	good, bad := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	want := map[netip.Addr]net.HardwareAddr{address: good}
	for _, c := range []struct {
		what string
		all  []learned
		want time.Duration
	}{
		{"nobody knows", nil, -1},
		{"since before", []learned{{at(-10), client, good}}, 0},
		{"both learn", []learned{{at(-10), client, bad}, {at(-10), server, bad}, {at(5), server, good}, {at(9), client, good}}, 9 * time.Millisecond},
		{"one does not", []learned{{at(-10), client, bad}, {at(-10), server, bad}, {at(5), server, good}}, -1},
		{"it changes back", []learned{{at(5), client, good}, {at(8), client, bad}}, -1},
		{"and again", []learned{{at(5), client, good}, {at(8), client, bad}, {at(12), client, good}, {at(15), client, good}}, 12 * time.Millisecond},
		{"after the end", []learned{{at(-10), client, bad}, {at(101), client, good}}, -1},
		{"one forgets", []learned{{at(-10), client, good}, {at(-10), server, bad}, {at(5), server, nil}}, 0},
		{"of another address", []learned{{at(-10), client, good}, {at(5), entry{0, other}, bad}}, 0},
	} {
		if got := right(c.all, want, begin, at(100)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
