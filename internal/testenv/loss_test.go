// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/host"
)

// Datagrams are lost in the share that is asked for, and what is not arrives.
func TestLose(t *testing.T) {
	a, b := Namespace(t, "sender"), Namespace(t, "receiver")
	if err := host.Connect(host.End{NS: a, Name: "eth0"}, host.End{NS: b, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, address := range map[*host.Namespace]string{a: "10.7.0.1/24", b: "10.7.0.2/24"} {
		if err := ns.AddAddresses("eth0", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	var from, to *net.UDPConn
	err := b.Do(func() (err error) {
		to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 7, 0, 2), Port: 9})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	err = a.Do(func() (err error) {
		from, err = net.DialUDP("udp4", nil, to.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	exchange := func() bool {
		if _, err := from.Write(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		to.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err := to.Read(make([]byte, 100))
		return err == nil
	}
	if !exchange() { // the neighbour is known now
		t.Fatal("nothing arrives without loss")
	}
	const n, share = 2000, 0.3
	loss := Lose(t, b, "eth0", share)
	arrived, began := 0, time.Now()
	for sent := 100; sent <= n; sent += 100 { // no more than the socket's buffer holds
		for range 100 {
			if _, err := from.Write(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
		// The kernel may process datagrams late: each has to arrive or to be dropped.
		for _, dropped := loss.Packets(); arrived+int(dropped) < sent; _, dropped = loss.Packets() {
			to.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := to.Read(make([]byte, 100)); err == nil {
				arrived++
			} else if time.Since(began) > time.Minute {
				t.Fatalf("%d arrived and %d were dropped of %d", arrived, dropped, sent)
			}
		}
	}
	_, dropped := loss.Packets()
	Near(t, "the share of dropped packets", float64(dropped)/n, share, 0.2)
	Near(t, "the share of lost datagrams", float64(n-arrived)/n, share, 0.2)
}
