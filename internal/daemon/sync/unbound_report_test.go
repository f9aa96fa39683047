// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What is missing is found without holding up messages, also if foreign ones filled the room
// for entries without a server.
func TestReportOfForeignEntriesIsShort(t *testing.T) {
	u := newUnbound(maxUnbound)
	now := time.Now()
	for i := range maxUnbound {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		c := model.Connection{
			Protocol: model.TCP, Client: netip.AddrPortFrom(a, 1024), Virtual: netip.AddrPortFrom(a, 80),
			Server: netip.AddrPortFrom(a, 80), Expires: 31 * 24 * time.Hour,
		}
		u.keep(now, &c, true)
	}
	often := model.Connection{ // one of them is missed twice
		Protocol: model.TCP, Client: netip.MustParseAddrPort("10.0.200.7:1025"), Virtual: netip.MustParseAddrPort("10.0.200.7:80"), Expires: time.Hour,
	}
	u.limit++
	u.keep(now, &often, true)
	var list []Missing
	shortest := time.Hour
	for range 5 {
		shortest = min(shortest, testenv.ThreadTime(t, func() { list = u.report() }))
	}
	if t.Logf("a report takes %v", shortest); shortest > 50*time.Millisecond {
		t.Errorf("a report takes %v", shortest)
	}
	if len(list) != mostReported || list[0] != (Missing{Service: "10.0.200.7:80/tcp", Entries: 2}) {
		t.Errorf("%d are reported, the first is %+v", len(list), list[0])
	}
}
