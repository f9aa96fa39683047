// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Errors about a hairpin's packets change on both sides, as the packets do:
// the server gets one about the director's packets, from the director; the client
// one about its own, from the service.
func TestHairpinICMP(t *testing.T) {
	r := newRig(t, small)
	r.timeouts(time.Hour, everyState()...) // no connection expires before its last error
	for _, f := range families {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			r.serve(service(p, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
		}
	}
	r.turn("hairpin=1")
	for _, f := range families {
		errors, others := f.messages()
		client, vip, server := f.server(20), f.vip(vipMasq), f.server(0)
		var table []golden
		for protocol, p := range transports(at(client, 40000), at(vip, 80)) {
			opened := byServer(p)
			director, _, err := testenv.Ends(r.put(opened, 0).frame)
			r.must(err)
			toServer := p.From(director.String()).To(at(server, 8080)).TTL(63)
			answer := p.Turned().From(at(server, 8080)).To(director.String()).Flags("SA").Payload("the answer")
			table = append(table, golden{protocol + ", TTL 1 of an answer", nil, byServer(answer.TTL(1)), refused("ttl exceeded", f.refusals().ttl)})
			toClient := answer.From(at(vip, 80)).To(at(client, 40000)).TTL(63)
			for _, m := range errors {
				for _, from := range []string{server, f.inner} {
					f.eachQuote(toServer, p.TTL(63), func(name string, about, becoming testenv.Packet, quote int) {
						table = append(table, golden{protocol + ", " + m.name + " of " + from + ", " + name, nil,
							byServer(m.between(from, director.Addr().String()).Quoting(about.Frame(), quote)),
							becomes(onward(m.between(vip, client).Quoting(becoming.Frame(), quote)))})
					})
				}
				f.eachQuote(toClient, answer.TTL(63), func(name string, about, becoming testenv.Packet, quote int) {
					table = append(table, golden{protocol + ", " + m.name + " of the client, " + name, nil,
						byServer(m.between(client, vip).Quoting(about.Frame(), quote)),
						becomes(onward(m.between(director.Addr().String(), server).Quoting(becoming.Frame(), quote)))})
				})
			}
			for _, m := range others {
				table = append(table, golden{protocol + ", " + m.name, nil,
					byServer(m.between(server, director.Addr().String()).Quoting(toServer.Frame(), 1000)), stays("pass icmp")})
			}
		}
		t.Run(f.name, func(t *testing.T) { r.check(t, table) })
	}
}

// Without the entry of the hairpin's replies the server does not know the addressee of the error.
func TestHairpinICMPWithoutHairpin(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.turn("hairpin=1")
	const client = "172.16.0.30:40000"
	r.fromServer(testenv.TCP(client, vip, "S"))
	replies := r.replies()
	r.must(r.removeConn(&replies[0]))
	from := netip.MustParseAddrPort(client).Addr().String()
	report := testenv.ICMP(from, netip.MustParseAddrPort(vip).Addr().String(), 3, 3).Quoting(testenv.TCP(vip, client, "SA").Frame(), 28)
	r.judge(t, golden{in: byServer(report), want: stays("pass hairpin icmp")}, 0)
}

// A first packet that is too big for the server's route opens a hairpin all the same.
func TestHairpinOfNarrowRoute(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			r.serve(service(model.UDP, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
			r.turn("hairpin=1")
			r.narrow(f.serverAddr(0), true)
			p := testenv.UDP(at(f.server(20), 40000), at(f.vip(vipMasq), 80), "").DontFragment()
			tooBig := f.refusals().tooBig
			tooBig.MTU = narrowMTU
			r.judge(t, golden{in: byServer(sized(p, narrowMTU+1)), want: refused("too big", tooBig)}, 0)
			got := r.put(byServer(sized(p, narrowMTU)), 0)
			if from, _, err := testenv.Ends(got.frame); got.verdict != redirect || err != nil || from.Addr() != f.own() {
				t.Errorf("%s: the server gets it from %s, %v", got.verdict, from, err)
			}
		})
	}
}
