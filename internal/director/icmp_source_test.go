// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf/features"

	"imbang/internal/host"
	"imbang/internal/model"
)

// sourceSaid reports whether the kernel tells programs the address that it would send
// from (BPF_FIB_LOOKUP_SRC, Linux 6.7).
func sourceSaid() bool {
	version, err := features.LinuxVersionCode()
	return err == nil && version >= 6<<16|7<<8
}

// A server gets errors about its replies from the director's own address, as it
// does when the director only forwards: not from the client's.
func TestErrorsAboutReplies(t *testing.T) {
	if !sourceSaid() {
		t.Skip("the kernel does not tell programs the address that it would send from (Linux 6.7)")
	}
	c := newCrossing(t, 0)
	for _, p := range shores {
		t.Run(p.name, func(t *testing.T) {
			c := crossing{c.in(t), c.client, c.router, c.server}
			c.serve(service(model.UDP, at(p.vip, 9), "rr"), model.Server{Addr: netip.MustParseAddr(p.server), Port: 9, Weight: 1})
			client, server := c.socket(c.client, at(p.client, 4000)), c.socket(c.server, at(p.server, 9))
			forwarded := c.socket(c.server, at(p.server, 10))
			c.must(c.ns.AddRoutes(host.Route{Dst: hostRoute(netip.MustParseAddr(p.client)), Dev: clientDev, MTU: narrowMTU, MTULocked: true}))
			c.opens(client, at(p.vip, 9), server)
			for name, ask := range map[string]struct{ size, ttl int }{"TTL": {100, 2}, "too big": {1468, 64}} {
				want, got := c.ask(forwarded, at(p.client, 4000), ask.size, ask.ttl), c.ask(server, at(p.client, 4000), ask.size, ask.ttl)
				if got != want || want.by != netip.MustParseAddr(p.dirServer) {
					t.Errorf("%s: of a reply: %s; forwarded: %s", strings.ToLower(name), got, want)
				}
			}
		})
	}
}
