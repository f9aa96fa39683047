// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"imbang/internal/model"
)

// fakeDNS knows one host; with silent it never answers.
type fakeDNS struct {
	silent bool
	takes  time.Duration
	asked  int
}

func (d *fakeDNS) answer(ctx context.Context) error {
	d.asked++
	if d.silent {
		<-ctx.Done()
		return &net.DNSError{IsTimeout: true}
	}
	time.Sleep(d.takes)
	return nil
}

func (d *fakeDNS) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if err := d.answer(ctx); err != nil {
		return nil, err
	}
	if network != "ip4" || host != "far.example.org" {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("192.0.2.8")}, nil
}

func (d *fakeDNS) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	if err := d.answer(ctx); err != nil {
		return nil, err
	}
	if addr != "192.0.2.7" {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return []string{"far.example.org."}, nil
}

func TestDNS(t *testing.T) {
	d := &fakeDNS{}
	n := testNames()
	n.dns = d
	if at, ok := n.parseEndpoint("far.example.org:http", model.TCP); !ok || at.addr.String() != "192.0.2.7" || at.port != 80 {
		t.Errorf("far.example.org:http is %v, %v", at, ok)
	}
	if _, ok := n.parseEndpoint("nowhere.example.org:80", model.TCP); ok {
		t.Error("nowhere.example.org was found")
	}
	for range 3 {
		if got := n.hostName(netip.MustParseAddr("192.0.2.7")); got != "far.example.org" {
			t.Errorf("192.0.2.7 is %q", got)
		}
		if got := n.hostName(netip.MustParseAddr("192.0.2.8")); got != "192.0.2.8" {
			t.Errorf("192.0.2.8 is %q", got)
		}
	}
	n.hostName(netip.MustParseAddr("172.16.0.40")) // in the file
	if d.asked != 4 {
		t.Errorf("%d questions, want each name once and none the file answers", d.asked)
	}
}

// TestDNSPatience: a listing does not wait for each of its hundred servers.
func TestDNSPatience(t *testing.T) {
	for _, c := range []struct {
		name  string
		dns   fakeDNS
		asked int
		waits time.Duration
	}{
		{"silent", fakeDNS{silent: true}, 1, dnsPatience},
		{"slow", fakeDNS{takes: 1500 * time.Millisecond}, 7, 7 * 1500 * time.Millisecond},
		{"quick", fakeDNS{takes: time.Millisecond}, 99, 99 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := testNames()
				n.dns = &c.dns
				start := time.Now()
				for a := netip.MustParseAddr("192.0.2.101"); a.As4()[3] < 200; a = a.Next() {
					if got := n.hostName(a); got != a.String() {
						t.Errorf("%v is %q", a, got)
					}
				}
				if took := time.Since(start); c.dns.asked != c.asked || took != c.waits {
					t.Errorf("%d questions took %v, want %d and %v", c.dns.asked, took, c.asked, c.waits)
				}
			})
		})
	}
}

func TestFilesMissing(t *testing.T) {
	n := &names{hostsFile: "testdata/none", servicesFile: "testdata/none"}
	if got := n.portName(80, model.TCP); got != "80" {
		t.Errorf("port 80 is %q", got)
	}
	if _, ok := n.host("localhost"); ok {
		t.Error("localhost was found")
	}
}
