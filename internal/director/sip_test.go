// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const sipVIP = "10.20.0.1:5060"

// sipService is persistent by Call-ID.
func sipService() model.Service {
	s := persistent(service(model.UDP, sipVIP, "rr"))
	s.Engine = "sip"
	return s
}

func invite(id string) string {
	return "INVITE sip:b@example.com SIP/2.0\r\nVia: SIP/2.0/UDP h\r\nCall-ID: " + id + "\r\nCSeq: 1 INVITE\r\n\r\n"
}

// sipClient is the address of the n-th client.
func sipClient(n int) string {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 | n>>16), byte(n >> 8), byte(n)}), 5060).String()
}

// callOf is what the tables know a client's call to sipService by.
func callOf(client, id string) bpfobj.LbCall {
	vip := netip.MustParseAddrPort(sipVIP)
	call := bpfobj.LbCall{Length: uint8(len(id)), Clients: bpfobj.LbFlow{
		Src: toAddress(netip.MustParseAddrPort(client).Addr()), Dst: toAddress(vip.Addr()), Dport: swapPort(vip.Port()),
		Protocol: uint8(model.UDP), Template: 1, Family: uint8(model.IPv4),
	}}
	copy(call.Id[:], id)
	return call
}

// checkCallID sends a payload and expects the Call-ID found in it, or the packet dropped.
func (r *rig) checkCallID(client, payload, id string, has bool) error {
	got := r.fromClient(testenv.UDP(client, sipVIP, payload))
	if !has {
		if got.verdict != drop {
			return fmt.Errorf("%q: %s, want it dropped", payload, got.verdict)
		}
		return nil
	}
	if _, err := got.server(); err != nil {
		return fmt.Errorf("%q: %w, want Call-ID %q", payload, err, id)
	}
	var number uint32
	if err := r.maps.Calls.Lookup(callOf(client, id), &number); err != nil {
		return fmt.Errorf("%q: Call-ID %q: %w", payload, id, err)
	}
	return nil
}

// The data plane finds the Call-IDs that Linux found.
func TestCallIDsAsRecorded(t *testing.T) {
	r := newRig(t, Sizes{Services: 4, Servers: 16, Connections: 1 << 14})
	r.addService(sipService(), 1)
	payloads, ids := recordedCallIDs(t)
	wrong := 0
	for i, p := range payloads {
		id := ""
		if ids[i] != nil {
			id = *ids[i]
		}
		if err := r.checkCallID(sipClient(i), p, id, ids[i] != nil); err != nil {
			t.Error(err)
			if wrong++; wrong > 20 {
				t.FailNow()
			}
		}
	}
}

// And others as the reference does, which the recorded ones judge.
func FuzzCallID(f *testing.F) {
	payloads, _ := recordedCallIDs(f)
	for i := 0; i < len(payloads); i += 50 {
		f.Add(payloads[i])
	}
	for _, n := range []int{63, 64, 65, 127, 128, 129} { // across the reader's windows
		f.Add("\r\n" + string(make([]byte, n)) + "\r\nCall-ID: a@b\r\n")
	}
	r := newRig(f, Sizes{Services: 4, Servers: 16, Connections: 1 << 16})
	s := sipService()
	s.Timeout = time.Second
	r.addService(s, 1)
	r.timeouts(time.Second, bpfobj.LbConnStateCONN_UDP)
	n := 0
	f.Fuzz(func(t *testing.T, payload string) {
		if len(payload) > 1400 {
			t.Skip()
		}
		n++
		id, has := callID(payload)
		if err := r.in(t).checkCallID(sipClient(n), payload, id, has); err != nil {
			t.Error(err)
		}
	})
}

// Templates are distinguished by client and Call-ID, are listed with it, and leave
// nothing behind.
func TestCallTemplates(t *testing.T) {
	r := newRig(t, small)
	s := sipService()
	s.Timeout = time.Second
	r.addService(s, 1, 1, 1)
	r.timeouts(time.Second, bpfobj.LbConnStateCONN_UDP)
	to := func(client, id string) netip.AddrPort {
		server, err := r.fromClient(testenv.UDP(client, sipVIP, invite(id))).server()
		r.must(err)
		return server
	}
	first, second := to("10.10.0.2:5060", "a@h"), to("10.10.0.2:5061", "b@h")
	if first == second {
		t.Errorf("two calls go to %s", first)
	}
	if got := to("10.10.0.2:5062", "a@h"); got != first {
		t.Errorf("a call goes to %s and to %s", first, got)
	}
	if got := to("10.10.0.3:5060", "a@h"); got == first {
		t.Errorf("another client's call goes to %s as well", got)
	}
	conns, err := collected(r.Director)
	r.must(err)
	got := map[string]int{}
	for _, c := range conns {
		if c.Engine != "" {
			got[fmt.Sprint(c.Client, " ", c.Virtual, " ", c.Engine, " ", c.EngineData)]++
		}
	}
	want := map[string]int{"10.10.0.2:0 10.20.0.1:5060 sip a@h": 1, "10.10.0.2:0 10.20.0.1:5060 sip b@h": 1, "10.10.0.3:0 10.20.0.1:5060 sip a@h": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	reasons := r.reasonsOf(func() { r.fromClient(testenv.UDP("10.10.0.4:5060", sipVIP, "no SIP")) })
	if diff := cmp.Diff(map[string]uint64{"drop no call id": 1}, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		conns, err := collected(r.Director)
		r.must(err)
		numbers, _, err := hashAll[uint32, bpfobj.LbCall](r.maps.CallNumbers, hashBatch)
		r.must(err)
		calls, _, err := hashAll[bpfobj.LbCall, uint32](r.maps.Calls, hashBatch)
		r.must(err)
		if len(conns)+len(numbers)+len(calls) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %d connections, %d numbers, %d calls", len(conns), len(numbers), len(calls))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A server of a service with an engine may send first, and then has the client in
// the service's name; one of another service may not.
func TestOutbound(t *testing.T) {
	r := newRig(t, small)
	s := sipService()
	r.addService(s, 1, 1)
	server := netip.AddrPortFrom(serverAddr(0), 8080).String()
	seen := func(client, payload string) (string, verdict) {
		got := r.fromServer(testenv.UDP(server, client, payload))
		if got.verdict != redirect {
			return "", got.verdict
		}
		r.must(testenv.CheckSums(got.frame))
		src, _, err := testenv.Ends(got.frame)
		r.must(err)
		return src.String(), got.verdict
	}
	if src, v := seen("10.10.0.2:5060", invite("a@h")); src != sipVIP {
		t.Errorf("%s from %q, want it from the service", v, src)
	}
	back, err := r.fromClient(testenv.UDP("10.10.0.2:5060", sipVIP, "x")).server()
	r.must(err)
	if back.String() != server {
		t.Errorf("the client's packet goes to %s", back)
	}
	if _, v := seen("10.10.0.2:5061", "no SIP"); v != pass {
		t.Errorf("without a Call-ID: %s, want pass", v)
	}
	plain := s
	plain.Engine = ""
	r.must(r.EditService(plain))
	if _, v := seen("10.10.0.2:5062", invite("a@h")); v != pass {
		t.Errorf("without an engine: %s, want pass", v)
	}
	alone := s
	alone.Flags &^= model.Persistent
	r.must(r.EditService(alone))
	if src, v := seen("10.10.0.2:5063", "no SIP"); src != sipVIP {
		t.Errorf("without persistence: %s from %q, want it from the service", v, src)
	}
}

// Of several servers with one address and port, the one added last may send first.
func TestOutboundIsTheLastAdded(t *testing.T) {
	r := newRig(t, small)
	with, without := sipService(), persistent(service(model.UDP, "10.20.0.2:5060", "rr"))
	r.addService(with, 1)
	at := bpfobj.LbEndpoint{Addr: toAddress(serverAddr(0)), Port: swapPort(8080), Protocol: uint8(model.UDP)}
	known := func() bool {
		var id uint32
		return r.maps.Outbound.Lookup(at, &id) == nil
	}
	if !known() {
		t.Error("the only server is not outbound")
	}
	r.addService(without, 1)
	if known() {
		t.Error("a server that a service without an engine has, too, since later, is outbound")
	}
	r.reopen()
	r.must(r.DeleteService(without.Key))
	if !known() {
		t.Error("it is not any more after that service went")
	}
	r.must(r.DeleteServer(with.Key, netip.AddrPortFrom(serverAddr(0), 8080)))
	if known() {
		t.Error("a deleted server is outbound")
	}
}
