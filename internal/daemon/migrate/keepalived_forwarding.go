// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// forwarding is a method as configurations have it.
type forwarding struct{ method, tunnel string }

func (f forwarding) keys() []string {
	keys := []string{"forward: " + f.method}
	if f.tunnel != "" {
		keys = append(keys, "tunnel: {"+f.tunnel+"}")
	}
	return keys
}

// serving is what a virtual_server and its real servers have in common.
type serving struct {
	forward forwarding
	inhibit bool
	weight  int64
}

func (s *serving) serves() *serving { return s }

// method is the keyword of a forwarding method.
func method[T interface{ serves() *serving }](k *keepalived, to T, s *statement) {
	k.forwarding(&to.serves().forward, s)
}

// weight is the keyword of a weight, of at least low.
func weight[T interface{ serves() *serving }](low int64) keyword[T] {
	return number(numeral{low: low, high: 1<<31 - 1, lenient: true},
		func(of T) string { return fmt.Sprint(of.serves().weight) },
		func(to T, n int64) { to.serves().weight = n })
}

// methods are those of keepalived.
var methods = map[string]string{"NAT": "masquerading", "DR": "direct-routing", "TUN": "tunnel"}

// forwarding reads a method, in capitals as keepalived knows them; another one changes
// nothing.
func (k *keepalived) forwarding(f *forwarding, s *statement) {
	method := methods[s.word(1)]
	switch {
	case method == "":
		k.lose(s.place, s.text(), "keepalived knows NAT, DR and TUN, in capitals, and leaves this out: %s", f.method)
		return
	case method != "tunnel":
		if len(s.words) > 2 {
			k.lose(s.place, s.text(), "options are for TUN only: left out")
		}
		f.tunnel = ""
	default:
		if t, ok := k.tunnel(s); ok {
			f.tunnel = t
		}
	}
	f.method = method
}

// tunnelPort is the form of a GUE tunnel's port.
var tunnelPort = numeral{low: 1, high: 65535}

// tunnel is the options of TUN. If keepalived refuses one, it takes none of them.
func (k *keepalived) tunnel(s *statement) (options string, ok bool) {
	kind, port, checksum := "ipip", int64(0), ""
	for i := 2; i < len(s.words); i++ {
		known := true
		switch w := s.words[i]; w {
		case "type":
			i++
			kind = s.word(i)
		case "port":
			i++
			port, _, known = tunnelPort.read(s.word(i))
		case "nocsum":
			checksum = "none"
		case "csum", "remcsum":
			checksum = w
		default:
			known = false
		}
		if !known {
			k.lose(s.place, s.text(), "%s is not an option of a tunnel: a tunnel without options, as keepalived", s.word(i))
			return "", false
		}
	}
	if !slices.Contains([]string{"ipip", "gue", "gre"}, kind) || (kind == "gue") != (port != 0) ||
		kind == "ipip" && (checksum == "csum" || checksum == "remcsum") || kind == "gre" && checksum == "remcsum" {
		k.lose(s.place, s.text(), "keepalived takes types ipip, gue with a port, and gre, and checksums of the last two: a tunnel without options, as keepalived")
		return "", false
	}
	if kind == "ipip" {
		return "", true
	}
	keys := []string{"type: " + kind}
	if port != 0 {
		keys = append(keys, fmt.Sprintf("port: %d", port))
	}
	if checksum != "" {
		keys = append(keys, "checksum: "+checksum)
	}
	return strings.Join(keys, ", "), true
}
