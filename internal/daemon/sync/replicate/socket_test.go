// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"strings"
	"testing"
)

// The error of a socket names what is wrong of address, port and interface.
func TestSocketErrors(t *testing.T) {
	a, b := twoNodes(t, few)
	own := Config{Role: Backup, Listen: netip.AddrPortFrom(a.addr, 0), To: []netip.AddrPort{netip.AddrPortFrom(b.addr, 0)}}
	a.must(own.Complete())
	open := func(c Config) (*socket, error) {
		var s *socket
		err := a.ns.Do(func() (err error) { s, err = openSocket(&c); return err })
		return s, err
	}
	s, err := open(own)
	a.must(err)
	defer s.conn.Close()
	foreign, device := own, own
	foreign.Listen = netip.AddrPortFrom(b.addr, 8790)
	device.Listen, device.Interface = netip.AddrPortFrom(a.addr, 9), "nosuch"
	for want, c := range map[string]Config{
		"address already in use (ss -ulnp 'sport = :8790' shows the process that has it)":            own,
		"cannot assign requested address (it is no address of this machine: ip address shows those)": foreign,
		"bind to interface nosuch: no such device (ip link shows the devices)":                       device,
	} {
		if _, err := open(c); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
