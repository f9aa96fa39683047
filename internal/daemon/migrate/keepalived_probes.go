// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

var smtpKeys = map[string]keyword[*checking]{
	"helo_name": lost[*checking]("the check says no HELO"),
	"host":      smtpHost,
}

func (k *keepalived) greeting(c *checking) []body {
	k.lose(c.place, c.text(), "the check waits for the server's greeting (220) and says no HELO")
	return []body{{`tcp: {expect: "^220"}`}}
}

// smtpHost is a further connection of SMTP_CHECK. What is not of the connection counts for
// the whole checker.
func smtpHost(k *keepalived, c *checking, s *statement) {
	outer := c.connection
	c.connection = connection{}
	smtpHosts.read(k, c, s.block)
	if c.wait == 0 {
		c.wait = c.timeout
		k.lose(s.place, s.text(), "has no connect_timeout, and keepalived waits 0 s: %s", span(c.wait))
	}
	c.hosts = append(c.hosts, c.connection)
	c.connection = outer
}

var smtpHosts = checkerBlock("host", commonKeys, connectionKeys)

var dnsKeys = map[string]keyword[*checking]{
	"type": func(k *keepalived, c *checking, s *statement) {
		if number := dnsTypes[strings.ToUpper(s.word(1))]; number != 0 {
			c.dnsType = number
			return
		}
		k.lose(s.place, s.text(), "not a type of DNS_CHECK: left out, as by keepalived")
	},
	"name": func(k *keepalived, c *checking, s *statement) {
		name := s.word(1)
		if len(s.words) == 1 || c.dnsName != "" || strings.HasPrefix(name, ".") && name != "." || strings.Contains(name, "..") {
			k.lose(s.place, s.text(), "there is no name, one before, or a part of it is empty: left out, as by keepalived")
			return
		}
		if strings.IndexByte(name, '.') == 1 {
			k.lose(s.place, s.text(), "keepalived 2.2 takes its first part for empty, and asks for the root: here it asks for %s", name)
		}
		c.dnsName = name
	},
}

const defaultDNSType = 6 // SOA

// dnsTypes are those that DNS_CHECK knows (RFC 1035, 3.2.2; RFC 3596; RFC 4034).
var dnsTypes = map[string]byte{"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "MX": 15, "TXT": 16, "AAAA": 28, "RRSIG": 46, "DNSKEY": 48}

// dnsQuery is the body of DNS_CHECK.
func (k *keepalived) dnsQuery(c *checking) []body {
	k.lose(c.place, c.text(), "any reply is a success, whatever its code")
	return []body{{dnsProbe(c.dnsName, c.dnsType)}}
}

const lengthLost = "the length of replies is not compared"

var udpKeys = map[string]keyword[*checking]{
	"payload": func(k *keepalived, c *checking, s *statement) {
		b, ok := payload(s.words[1:])
		if !ok {
			k.lose(s.place, s.text(), "want hexadecimal digits alone")
			return
		}
		c.payload = b
	},
	"require_reply": func(k *keepalived, c *checking, s *statement) {
		c.reply = true
		if len(s.words) > 1 {
			k.lose(s.place, s.text(), "any reply is a success: write expect")
		}
	},
	"min_reply_length": lost[*checking](lengthLost),
	"max_reply_length": lost[*checking](lengthLost),
}

func (k *keepalived) datagram(c *checking) []body {
	var keys []string
	if c.payload == nil {
		k.lose(c.place, c.words[0], "has no payload: an empty datagram is sent; keepalived sends random bytes")
	} else {
		keys = append(keys, fmt.Sprintf(`send_hex: "%x"`, c.payload))
	}
	if c.reply {
		keys = append(keys, `expect: ".*"`)
	}
	return []body{{"udp: {" + strings.Join(keys, ", ") + "}"}}
}

// payload is the bytes of hexadecimal words. An odd last digit of a word is a byte of its
// own (read_hex_str() of keepalived).
func payload(words []string) (b []byte, ok bool) {
	for _, w := range words {
		if len(w)%2 == 1 {
			w = w[:len(w)-1] + "0" + w[len(w)-1:]
		}
		part, err := hex.DecodeString(w)
		if err != nil {
			return nil, false
		}
		b = append(b, part...)
	}
	return b, len(b) > 0
}

// dynamicWeight is the weight of a server with misc_dynamic: its shares are the weights of keepalived.
const dynamicWeight = 253

// scriptCheck is what a MISC_CHECK has.
type scriptCheck struct {
	command []string
	timeout time.Duration // 0: none
	dynamic bool
	user    string
}

var scriptKeys = map[string]keyword[*checking]{
	"misc_path": func(k *keepalived, c *checking, s *statement) {
		if command := k.command(s); command != nil {
			c.script.command = command
		}
	},
	"misc_timeout": number(numeral{low: 0, high: 4294, lenient: true}, // UINT_MAX microseconds
		func(c *checking) string { return "until the next check, " + span(c.delay) },
		func(c *checking, n int64) { c.script.timeout = time.Duration(n) * time.Second }),
	"misc_dynamic": func(k *keepalived, c *checking, s *statement) {
		c.script.dynamic = true
		k.lose(s.place, s.text(), "the server's weight is %[1]d, so that an exit status sets it to status - 2, as in keepalived; until the first status from 2 to 255 it is %[1]d, not %[2]d: if the script has none, write weight: %[2]d", dynamicWeight, c.of.server.weight)
	},
	"user": func(k *keepalived, c *checking, s *statement) { c.script.user = k.user(s) },
}

func (k *keepalived) scriptBody(c *checking) []body {
	if c.script.command == nil {
		k.lose(c.place, c.words[0], "has no misc_path that can be run: the server is not checked this way")
		return nil
	}
	keys := []string{"command: " + list(c.script.command)}
	if c.script.dynamic {
		if c.of.server.dynamic {
			k.lose(c.place, c.words[0], "not the first with misc_dynamic of the server: the least of their weights counts; keepalived adds their changes of it")
		}
		c.of.server.dynamic = true
		keys = append(keys, "dynamic: true")
	}
	if c.script.user != "" {
		keys = append(keys, "user: "+quoted(c.script.user))
	} else if k.first == (place{}) {
		k.first = c.place
	}
	return []body{{"script: {" + strings.Join(keys, ", ") + "}"}}
}
