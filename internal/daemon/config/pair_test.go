// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/pair"
)

func TestPair(t *testing.T) {
	const replication = "synchronization: {replication: {role: master, listen: \"192.0.2.1:900\", to: [\"192.0.2.2:901\"], key_file: /k}}\n"
	at := netip.MustParseAddrPort
	for text, want := range map[string]*pair.Config{
		"services: []\n":           nil,
		replication + "pair: {}\n": {Listen: at("192.0.2.1:8791"), Peer: at("192.0.2.2:8791"), KeyFile: "/k", Hold: 5 * time.Second},
		"pair: {peer: \"[fe80::2]:7\", listen: \"fe80::1\", device: eth1, key_file: /x, hold: 2 s}\n": {
			Listen: at("[fe80::1]:8791"), Peer: at("[fe80::2]:7"), Device: "eth1", KeyFile: "/x", Hold: 2 * time.Second},
	} {
		c, err := Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if (c.Pair == nil) != (want == nil) || want != nil && *c.Pair != *want || (c.Document == nil) != (want == nil) {
			t.Errorf("%s: %+v", text, c.Pair)
		}
	}
	for text, want := range map[string]string{
		"pair: {}\n": "x.yaml:1:7: pair.listen: \"\": want an address of this director",
		"pair: {listen: 192.0.2.1, key_file: /k}\n":                           "pair.peer: \"\": want an address of the other director",
		"pair: {listen: \"192.0.2.1:0\", peer: 192.0.2.2, key_file: /k}\n":    "pair.listen: \"192.0.2.1:0\": want an address",
		"pair: {listen: 192.0.2.1, peer: 192.0.2.1, key_file: /k}\n":          "pair.peer: 192.0.2.1 is this director's own address",
		"pair: {listen: 192.0.2.1, peer: 192.0.2.2}\n":                        "pair.key_file: \"\": want the absolute path",
		"pair: {listen: fe80::1, peer: fe80::2, key_file: /k}\n":              "pair.device: missing: the link-local address",
		"pair: {listen: 192.0.2.1, peer: 192.0.2.2, key_file: /k, hold: 1}\n": "pair.hold: 1 has no unit",
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
