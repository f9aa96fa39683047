// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
	"imbang/internal/strictyaml"
)

// translation is a configuration, and lines that what it becomes has and does not have.
type translation struct {
	name, text string
	want, not  []string
}

func (one translation) run(t *testing.T, text string) {
	t.Run(one.name, func(t *testing.T) {
		r, err := importOne(t, "x", []byte(text), Source{Program: func(name string) string { return map[string]string{"sh": "/usr/bin/sh"}[name] }})
		if err != nil {
			t.Fatal(err)
		}
		got := string(r.YAML())
		for _, w := range one.want {
			if !strings.Contains(got, w) {
				t.Errorf("no %s in\n%s", w, got)
			}
		}
		for _, w := range one.not {
			if strings.Contains(got, w) {
				t.Errorf("%s in\n%s", w, got)
			}
		}
		if err := valid(t, r.YAML()); err != nil {
			t.Errorf("imbang run does not take it: %v\n%s", err, got)
		}
	})
}

// What keepalived 2.2.7 makes of it is from keepalived -t and its validate_check_config().
func TestKeepalivedVirtual(t *testing.T) {
	real1 := "real_server 10.0.1.1 80 {\n}\n"
	for _, one := range []translation{
		{"words behind the port", "virtual_server 10.0.0.1 80 dev eth0.5 {\nprotocol TCP\n" + real1 + "}", []string{
			`"10.0.0.1:80"`, "x:1: virtual_server 10.0.0.1 80 dev eth0.5: dev eth0.5: behind the port: left out, as by keepalived"}, nil},
		{"alpha and its value", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nalpha 1\ninhibit_on_failure yes\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\nconnect_timeout 1\n}\n}\n}", []string{"initial: down"}, []string{"Not carried"}},
		{"alpha off", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nalpha off\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\n}", []string{"initial: down", "x:3: alpha off: keepalived ignores the value: alpha is set"}, nil},
		{"omega without commands", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nomega 1\nquorum_up /bin/a\n" + real1 + "}", nil, []string{"omega"}},
		{"omega", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nomega\nquorum_down /bin/a\n" + real1 + "}", []string{
			"x:3: omega: quorum_down and notify_down do not run when imbang run ends, and its services stay: use ExecStopPost of the systemd unit"}, nil},
		{"omega of a server", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nomega\nreal_server 10.0.1.1 80 {\nnotify_down /bin/a\n}\n}", []string{"x:3: omega: quorum_down and notify_down do not run"}, nil},
		{"check of the virtual address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nlb_kind TUN\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\nconnect_ip 10.0.0.1\nconnect_port 81\n}\n}\n}", []string{"port: 81"}, []string{"Not carried"}},
		{"host of a check of the virtual address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nlb_kind TUN\nreal_server 10.0.1.1 80 {\nHTTP_GET {\nconnect_ip 10.0.0.1\nurl {\npath /\n}\n}\n}\n}", []string{`host: "10.0.0.1:80"`}, []string{"Not carried"}},
		{"ping of the virtual address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nlb_kind TUN\nreal_server 10.0.1.1 80 {\nPING_CHECK {\nconnect_ip 10.0.0.1\n}\n}\n}", []string{
			"x:6: connect_ip 10.0.0.1: checks are of the server itself: for another address use a script"}, nil},
		{"check of another address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\nconnect_ip 10.0.0.1\n}\n}\n}", []string{
			"x:5: connect_ip 10.0.0.1: checks are of the server itself: for another address use a script"}, nil},
		{"check of the server's address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\nconnect_ip 10.0.1.1\n}\n}\n}", nil, []string{"Not carried"}},
		{"check of no address", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\nconnect_ip web\n}\n}\n}", []string{"x:5: connect_ip web: not an address: left out, as by keepalived"}, nil},
		{"requests of HTTP/1.1", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nHTTP_GET {\nhttp_protocol 1.1\nurl {\npath /\n}\n}\n}\n}", nil, []string{"Not carried"}},
		{"requests of HTTP/1.0", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nHTTP_GET {\nhttp_protocol 1.0C\nurl {\npath /\n}\n}\n}\n}", []string{"x:5: http_protocol 1.0C: requests are of HTTP/1.1"}, nil},
		{"services of a group that are there", "virtual_server_group g {\n10.0.0.1 80\n10.0.0.2 80\n}\nvirtual_server group g {\nprotocol TCP\nquorum_up /bin/a\n" + real1 + "}\nvirtual_server group g {\nprotocol TCP\nquorum_up /bin/a\nreal_server 10.0.1.2 80 {\n}\n}", []string{
			"x:5: virtual_server group g: the group becomes 2 services", "is the service of x:5 already: left out with its servers: move them there"}, []string{"x:11: virtual_server group g: the group becomes"}},
		{"no protocol", "virtual_server 10.0.0.1 80 {\n" + real1 + "}", []string{
			`protocol: udp`, "x:1: virtual_server 10.0.0.1: has no protocol, and keepalived takes UDP"}, nil},
		{"protocol", "virtual_server 10.0.0.1 80 {\nprotocol TCP\n" + real1 + "}", nil, []string{"udp", "Not carried"}},
		{"mark", "virtual_server fwmark 5 {\n" + real1 + "}", []string{"mark: 5"}, []string{"udp", "Not carried"}},
		{"unknown protocol", "virtual_server 10.0.0.1 80 {\nprotocol ICMP\n" + real1 + "}", []string{"protocol: udp", "x:2: protocol ICMP: not a protocol"}, nil},
		{"lower case", "virtual_server 10.0.0.1 80 {\nlb_kind dr\n" + real1 + "}", []string{
			"forward: masquerading", "x:2: lb_kind dr: keepalived knows NAT, DR and TUN, in capitals, and leaves this out: masquerading"}, nil},
		{"lower case of a server", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nreal_server 10.0.1.1 80 {\nlvs_method nat\n}\n}", []string{
			`{address: "10.0.1.1:80", weight: 1, checks: []}`, "leaves this out: direct-routing"}, nil},
		{"tunnel without port", "virtual_server 10.0.0.1 80 {\nlb_kind TUN type gue\n" + real1 + "}", []string{"forward: tunnel", "a tunnel without options, as keepalived"}, []string{"tunnel: {"}},
		{"delay_loop NaN", "virtual_server 10.0.0.1 80 {\ndelay_loop NaN\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\n}", []string{"interval: 60 s", "x:2: delay_loop NaN: keepalived accepts only 0.000001 or more: 60 s, as in keepalived"}, nil},
		{"delay_loop 0", "virtual_server 10.0.0.1 80 {\ndelay_loop 0\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\n}", []string{
			"interval: 60 s", "x:2: delay_loop 0: keepalived accepts only 0.000001 or more: 60 s, as in keepalived"}, []string{"10 ms"}},
		{"quorum", "virtual_server 10.0.0.1 80 {\nquorum 0\nhysteresis 5\n" + real1 + "}", []string{
			"x:2: quorum 0: keepalived accepts only 1 to 4294967295: 1, as in keepalived", "hysteresis 5: not below the quorum of 1: 0"}, []string{"    quorum:", "    hysteresis:"}},
		{"hysteresis of the quorum", "virtual_server 10.0.0.1 80 {\nquorum 2\nhysteresis 2\nweight 2\n" + real1 + "}", []string{
			"    hysteresis: 1", "hysteresis 2: not below the quorum of 2: 1, as keepalived"}, nil},
		{"mask that is a number", "virtual_server 10.0.0.1 80 {\npersistence_granularity 32\n" + real1 + "}", []string{
			"netmask: 32", "x:2: persistence_granularity 32: keepalived reads the mask 0.0.0.32: here it is a prefix length"}, nil},
		{"mask that is a larger number", "virtual_server 10.0.0.1 80 {\npersistence_granularity 33\n" + real1 + "}", []string{
			"x:2: persistence_granularity 33: not a mask that is a prefix"}, []string{"netmask:", "prefix length"}},
		{"quorum above the weights", "virtual_server 10.0.0.1 80 {\nquorum 9\nweight 3\nhysteresis 2\n" + real1 + "real_server 10.0.1.2 80 {\nweight 1\n}\n}", []string{
			"quorum: 4", "hysteresis: 2", "weight: 3", "quorum 9: more than the sum of the weights: 4"}, nil},
		{"quorum of a server twice", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nquorum 2\n" + real1 + real1 + "}", []string{
			"x:3: quorum 2: more than the sum of the weights: 1, as keepalived"}, []string{"    quorum:"}},
		{"quorum of a server of the other family", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nquorum 4\nhysteresis 3\n" + real1 + "real_server 10.0.1.2 80 {\n}\nreal_server 2001:db8::1 80 {\nweight 9\n}\n}", []string{
			"    quorum: 2\n    hysteresis: 1", "x:3: quorum 4: more than the sum of the weights: 2, as keepalived", "hysteresis 3: not below the quorum of 2: 1, as keepalived"}, nil},
		{"quorum of each family of a group", "virtual_server_group G {\n10.0.0.1 80\n2001:db8::9 80\n}\nvirtual_server group G {\nprotocol TCP\nlvs_method TUN\nquorum 2\n" + real1 + "real_server 2001:db8::1 80 {\nlvs_method NAT\n}\n}", []string{
			"quorum 2: more than the sum of the weights: 1, as keepalived", "10.0.0.1:80\"\n    forward: tunnel", "[2001:db8::9]:80\"\n    quorum: 2\n"}, nil},
		{"inhibit_on_failure of a server that is left out", "virtual_server 10.0.0.1 80 {\nprotocol TCP\n" + real1 + "real_server 10.0.1.1 80 {\ninhibit_on_failure\n}\n}", []string{"on_failure: remove"}, []string{"inhibit_on_failure of some"}},
		{"inhibit_on_failure of the servers that are left", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\ninhibit_on_failure\n}\n" + real1 + "}", nil, []string{"on_failure", "inhibit_on_failure of some"}},
		{"netmask alone", "virtual_server 10.0.0.1 80 {\npersistence_granularity 255.255.0.0\n" + real1 + "}", []string{"persistence: 360 s", "netmask: 16"}, nil},
		{"every port", "virtual_server 10.0.0.1 0 {\n" + real1 + "}", []string{`virtual: "10.0.0.1"`, "persistence: 360 s"}, nil},
		{"every port by DR", "virtual_server 10.0.0.1 {\nlb_kind DR\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\nreal_server 10.0.1.2 {\nTCP_CHECK {\n}\n}\n}", []string{
			"port: 80", `{address: "10.0.1.1", weight: 1, checks: [tcp]}`, `{address: "10.0.1.2", weight: 1, checks: []}`, "TCP_CHECK: has no port to connect to"}, nil},
		{"ops with TCP", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nops\n" + real1 + "}", []string{"x:3: ops: is for UDP"}, []string{"one_packet"}},
		{"ops", "virtual_server fwmark 3 {\nprotocol TCP\nops\n" + real1 + "}", []string{"one_packet: true"}, nil},
		{"flags twice", "virtual_server 10.0.0.1 80 {\nlvs_sched mh\nmh-port\nflag-2\nflag-1\nflag-3\nsh-port\n" + real1 + "}", []string{
			`flags: ["mh-fallback", "mh-port"]`, "x:6: flag-3: not a flag of the scheduler mh", "x:7: sh-port: not a flag"}, nil},
		{"flag above its scheduler", "virtual_server 10.0.0.1 80 {\nsh-port\nlvs_sched sh\n" + real1 + "}", []string{"x:2: sh-port: not a flag of the scheduler above it, wlc"}, []string{"flags:"}},
		{"sorry server", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nsorry_server 10.0.9.9 8080\n" + real1 + "}", []string{`sorry: {address: "10.0.9.9"}`, "x:3: sorry_server 10.0.9.9 8080: only masquerading changes the port"}, nil},
		{"sorry server of another method", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nsorry_server 10.0.9.9 8080\nsorry_server_lvs_method NAT\n" + real1 + "}", []string{
			`sorry: {address: "10.0.9.9:8080", forward: masquerading}`}, []string{"only masquerading"}},
		{"sorry server of its own method", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nsorry_server 10.0.9.8 80\nsorry_server_lvs_method NAT\nsorry_server 10.0.9.9 80\n" + real1 + "}", []string{
			`sorry: {address: "10.0.9.9:80"} # x:5`, "x:5: sorry_server 10.0.9.9 80: replaces that of x:3, as with keepalived"}, nil},
		{"sorry server below one that counts", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nsorry_server 10.0.9.8 80\nsorry_server 10.0.9 80\n" + real1 + "}", []string{
			`sorry: {address: "10.0.9.8:80"} # x:3`, "x:4: sorry_server 10.0.9 80: 10.0.9 is not an address"}, nil},
		{"sorry server that is a real server", "virtual_server 10.0.0.1 80 {\nsorry_server 10.0.1.1 80\n" + real1 + "}", []string{`sorry: {address: "10.0.1.1:80"}`}, []string{"a real server"}},
		{"real server twice", "virtual_server 10.0.0.1 80 {\n" + real1 + real1 + "}", []string{"x:4: real_server 10.0.1.1 80: the service has a server of this address already"}, nil},
		{"thresholds", "virtual_server 10.0.0.1 80 {\nreal_server 10.0.1.1 80 {\nuthreshold 5\nlthreshold 9\n}\n}", []string{"upper: 5", "the lower threshold of 9 is above"}, []string{"lower: 9"}},
		{"families", "virtual_server 10.0.0.1 80 {\n" + real1 + "real_server 2001:db8::1 80 {\n}\nreal_server 2001:db8::2 80 {\nlvs_method TUN\n}\n}", []string{
			"x:4: real_server 2001:db8::1 80: of another address family", "2001:db8::2"}, []string{`"[2001:db8::1]:80"`}},
		{"family of the first server of a mark", "virtual_server fwmark 5 {\nquorum 2\nreal_server 2001:db8::1 80 {\n}\n" + real1 + "}", []string{
			"mark: 5\n    family: ipv6", "x:5: real_server 10.0.1.1 80: of another address family", "quorum 2: more than the sum of the weights: 1"}, []string{"10.0.1.1:80\""}},
		{"family of the servers of a mark by tunnel", "virtual_server fwmark 5 {\nlvs_method TUN\nreal_server 2001:db8::1 {\n}\n}", []string{"mark: 5\n    family: ipv6", "2001:db8::1"}, []string{"Not carried"}},
		{"families of the servers of a mark by tunnel", "virtual_server fwmark 5 {\nlvs_method TUN\nreal_server 2001:db8::1 {\n}\nreal_server 10.0.1.1 {\n}\n}", []string{"2001:db8::1", "10.0.1.1"}, []string{"family: ipv6", "Not carried"}},
		{"family of a mark below its server", "virtual_server fwmark 5 {\n" + real1 + "ip_family inet6\n}", []string{
			`{address: "10.0.1.1:80"`, "x:4: ip_family inet6: the family is inet by the address or by a line before: left out, as by keepalived"}, []string{"family: ipv6"}},
		{"other family above a tunnel", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 2001:db8::1 80 {\n}\nlvs_method TUN\nreal_server 2001:db8::2 80 {\n}\n}", []string{
			"x:3: real_server 2001:db8::1 80: of another address family", `{address: "[2001:db8::2]:80"`}, []string{`{address: "[2001:db8::1]`}},
		{"ports of a mark", "virtual_server fwmark 5 {\nlb_kind DR\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\nreal_server 10.0.1.2 {\nPING_CHECK {\n}\n}\n}", []string{
			`{address: "10.0.1.1", weight: 1, checks: [tcp]}`, "port: 80", "checks: [icmp]"}, nil},
		{"port of a check by DR", "virtual_server 10.0.0.1 80 {\nlb_kind DR\nreal_server 10.0.1.1 8080 {\nTCP_CHECK {\n}\n}\n}", []string{"port: 8080", `{address: "10.0.1.1", weight`}, nil},
		{"a group's commands", "virtual_server_group G {\n10.0.0.1 80\n10.0.0.2 80\n}\nvirtual_server group G {\nquorum_up /bin/up\n" + real1 + "}", []string{
			"x:5: virtual_server group G: the group becomes 2 services, and each runs the quorum's commands"}, nil},
		{"quorum without a path", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nquorum_up \"probe up\"\nquorum_up /bin/b\n" + real1 + "}", []string{
			`quorum_up: ["/usr/bin/env", "probe", "up"]`, "x:3: quorum_up probe up: probe is not in", "if it is missing, nothing runs", "x:4: quorum_up /bin/b: the quorum_up before counts"}, nil},
		{"words that are true in any case", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nalpha no\nreal_server 10.0.1.1 80 {\nTCP_CHECK {\n}\n}\n}", []string{"initial: down", "x:3: alpha no: keepalived ignores the value: alpha is set"}, nil},
		{"flag above its scheduler by number", "virtual_server 10.0.0.1 80 {\nflag-2\nlvs_sched sh\n" + real1 + "}", []string{`flags: ["sh-port"]`}, []string{"x:2"}},
		{"tunnel with an option that is none", "virtual_server 10.0.0.1 80 {\nlb_kind TUN type gue port 5555\nreal_server 10.0.1.1 80 {\nlvs_method TUN port 0\n}\n}", []string{
			"tunnel: {type: gue, port: 5555}", "x:4: lvs_method TUN port 0: 0 is not an option"}, []string{"forward: tunnel}"}},
		{"connect_timeout below SMTP_CHECK", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nSMTP_CHECK {\n}\nTCP_CHECK {\n}\n}\nconnect_timeout 9\n}", []string{
			"timeout: 5 s", "tcp: {}\n    interval: 60 s\n    fast_interval: 1 s\n    timeout: 9 s"}, nil},
		{"connect_timeout above SMTP_CHECK", "virtual_server 10.0.0.1 80 {\nprotocol TCP\nconnect_timeout 8\nreal_server 10.0.1.1 80 {\nSMTP_CHECK {\n}\nconnect_timeout 7\n}\nreal_server 10.0.1.2 80 {\nconnect_timeout 6\nSMTP_CHECK {\n}\n}\n}", []string{
			"timeout: 8 s", "timeout: 6 s"}, []string{"timeout: 7 s"}},
		{"no real server", "virtual_server 10.0.0.1 80 {\nprotocol TCP\n}", []string{"x:1: virtual_server 10.0.0.1 80: has no real server"}, nil},
		{"no destination", "virtual_server 0.0.0.0 51820 {\nprotocol UDP\n" + real1 + "}\nvirtual_server 10.0.0.1 80 {\nprotocol TCP\n" + real1 + "}", []string{
			"x:1: virtual_server 0.0.0.0 51820: no packet has this destination, and Linux does not take it for every address: write the virtual address; left out with its servers"}, []string{"51820\""}},
		{"no destination in a group", "virtual_server_group G {\n10.0.0.1 80\n224.0.0.1-9 80\nfwmark 5\n}\nvirtual_server group G {\nprotocol TCP\n" + real1 + "}", []string{
			`virtual: "10.0.0.1:80"`, "mark: 5", "x:3: 224.0.0.1-9 80: no packet has this destination that a virtual service can balance"}, []string{`"224`}},
		{"value with braces", "virtual_server 10.0.0.1 80 {\nsnmp_name a{2}\n" + real1 + "}", []string{"x:2: snmp_name a: has a { } block"}, nil},
	} {
		one.run(t, one.text)
	}
}

func TestKeepalivedCheckers(t *testing.T) {
	get := func(url string) string { return "HTTP_GET {\nurl {\n" + url + "\n}\n}" }
	for _, one := range []translation{
		{"host", get("path /"), []string{`host: "10.0.1.1:80"`}, []string{"Not carried"}},
		{"virtualhost", "virtualhost a\n" + get("path /"), []string{`host: "a"`}, nil},
		{"regex", get(`path /` + "\n" + `regex "v\\d+ \"a\""`), []string{`expect: "v\\d+ \"a\""`}, nil},
		{"regex without the head", get("path /\nregex \"200 OK\""), []string{`expect: "200 OK"`, "x:6: regex: the body alone is searched; keepalived also searches the head of a reply that arrives with the body"}, nil},
		{"regex of two words", get("path /\nregex a b"), []string{"x:6: regex a b: want one regular expression"}, []string{"expect"}},
		{"regex_no_match", get("path /\nregex \"ERROR\"\nregex_no_match"), []string{"x:6: regex ERROR: there is no regex_no_match: the body is not looked at"}, []string{"expect"}},
		{"regex offsets", get("path /\nregex_min_offset 3\nregex_max_offset 9\nregex \"a\""), []string{"there is no regex_min_offset, no regex_max_offset"}, []string{"expect"}},
		{"regex options", get("path /\nregex_options caseless dupnames caseless\nregex \"a\""), []string{`expect: "(?i)a"`}, []string{"x:6"}},
		{"regex options of PCRE", get("path /\nregex_options extended\nregex \"a b\""), []string{"there is no extended"}, []string{"expect"}},
		{"end of the body", get("path /\nregex \"OK$\""), []string{`expect: "OK(?:\\n?\\z)"`}, nil},
		{"end of a line", get("path /\nregex_options multiline\nregex \"OK$\""), []string{`expect: "(?m)OK$"`}, nil},
		{"a class", get("path /\nregex \"[]$][[:alpha:]$]\\\\$\""), []string{`expect: "[]$][[:alpha:]$]\\$"`}, nil},
		{"no path", get("regex a"), []string{"x:4: url: has no path", "x:3: HTTP_GET: has no url with a path", "checks: []"}, nil},
		{"braces", get("path /{id}/x"), []string{"x:5: path /: has a { } block", "checks: []"}, nil},
		{"status", get("path /\nstatus_code 200 x 301-302"), []string{`status: "200,301-302"`, "x: not a status"}, nil},
		{"payload", "UDP_CHECK {\npayload Ab12f 3 456 546443123\n}", []string{`send_hex: "ab120f0345065464431203"`}, []string{"Not carried"}},
		{"no payload", "UDP_CHECK {\n}", []string{"x:3: UDP_CHECK: has no payload: an empty datagram is sent; keepalived sends random bytes"}, nil},
		{"script", "MISC_CHECK {\nmisc_path \"/bin/check -e 'a b'\"\n}", []string{`command: ["/bin/check", "-e", "a b"]`, "x:3: MISC_CHECK: scripts run as nobody"}, nil},
		{"script without quotes", "MISC_CHECK {\nmisc_path /bin/check a\nuser nagios nogroup\n}", []string{
			`command: ["/bin/check"]`, `user: "nagios"`, "the command is /bin/check alone", "not with group nogroup alone"}, []string{"run as nobody"}},
		{"no script", "MISC_CHECK {\nmisc_timeout 3\n}", []string{"checks: []", "x:3: MISC_CHECK: has no misc_path that can be run"}, nil},
		{"two dynamic scripts", "weight 2\nMISC_CHECK {\nmisc_path /bin/a\nmisc_dynamic\n}\nMISC_CHECK {\nmisc_path /bin/b\nmisc_dynamic\n}", []string{
			"weight: 253, checks: [script, script-2]", "until the first status from 2 to 255 it is 253, not 2", "x:8: MISC_CHECK: not the first with misc_dynamic"}, nil},
		{"dynamic script that is none", "MISC_CHECK {\nmisc_dynamic\n}", []string{"weight: 1, checks: []"}, nil},
		{"notify", "notify_down \"/bin/notify 'server one' down\"", []string{`notify_down: ["/bin/notify", "server one", "down"]`, "x:3: notify scripts: run as the daemon's user"}, nil},
		{"retry of another checker", "TCP_CHECK {\nconnect_timeout 3\nnb_get_retry 3\n}", []string{"fall: 2", "x:5: nb_get_retry 3: not a keyword of TCP_CHECK: left out, as by keepalived; write retry"}, []string{"fall: 4"}},
		{"connect_timeout 0", "TCP_CHECK {\nconnect_timeout 0\n}", []string{"timeout: 5 s", "x:4: connect_timeout 0: keepalived accepts only 0.000001 to 4294.967295: 5 s, as in keepalived"}, nil},
		{"delay_before_retry 0", "TCP_CHECK {\ndelay_before_retry 0\n}", []string{"fast_interval: 10 ms", "x:4: delay_before_retry 0: want 10 ms to 365 days: 10 ms"}, nil},
		{"timeout longer than the interval", "delay_loop 1\nTCP_CHECK {\nconnect_timeout 3\n}", []string{
			"interval: 3 s", "timeout: 3 s", "start_spread: 1 s", "x:4: timeout of 3 s: longer than the interval of 1 s"}, nil},
		{"program without a path", "MISC_CHECK {\nmisc_path \"probe sctp 10.0.0.9\"\n}", []string{
			`command: ["/usr/bin/env", "probe", "sctp", "10.0.0.9"]`, "checks: [script]", "x:4: misc_path probe sctp 10.0.0.9: probe is not"}, nil},
		{"script with a pipe", "MISC_CHECK {\nmisc_path \"/bin/echo a | /bin/grep -q b\"\n}", []string{
			`command: ["/bin/echo", "a", "|", "/bin/grep", "-q", "b"]`, "x:4: misc_path /bin/echo a | /bin/grep -q b: | is an argument of /bin/echo, here as with keepalived: for a shell write [/bin/sh, -c, ...]"}, nil},
		{"script with a redirection", "MISC_CHECK {\nmisc_path \"/bin/check >/dev/null 2>&1\"\n}", []string{"x:4: misc_path /bin/check >/dev/null 2>&1: >/dev/null is an argument of /bin/check"}, nil},
		{"script of a shell", "MISC_CHECK {\nmisc_path \"/bin/sh -c 'a | b >/dev/null'\"\n}", nil, []string{"is an argument of"}},
		{"program in the path", "MISC_CHECK {\nmisc_path \"sh -c 'exit 0'\"\n}", []string{`command: ["/usr/bin/sh", "-c", "exit 0"]`}, []string{"x:4"}},
		{"notify without a path", "notify_down \"probe down\"", []string{`notify_down: ["/usr/bin/env", "probe", "down"]`, "x:3: notify_down probe down: probe is not"}, nil},
		{"host of SMTP_CHECK", "SMTP_CHECK {\nhost {\nconnect_port 2525\n}\n}", []string{"port: 2525", "checks: [smtp]"}, []string{"quotes"}},
		{"password of a url", get("path /\nusername monitor\npassword secret"), []string{`{Authorization: "Basic bW9uaXRvcjpzZWNyZXQ="}`, "x:6: username: keepalived", "x:7: password: keepalived"}, []string{"secret\n"}},
		{"checker that is none", "FOO_CHECK {\nconnect_port 5\n}", []string{"checks: []", "x:3: FOO_CHECK: not a keyword of real_server: left out with its block; keepalived reads the lines of the block as lines of real_server"}, nil},
		{"statuses of two lines", get("path /\nstatus_code 200\nstatus_code 404"), []string{`status: "200,404"`}, []string{"Not carried"}},
		{"digest twice", get("path /\ndigest 9b3a0c85a887a256d6939da88aabd8cd\ndigest 00000000000000000000000000000000"), []string{`digest: "9b3a`, "x:7: digest 0000"}, nil},
		{"offsets that cancel each other", get("path /\nregex a\nregex_min_offset 9\nregex_max_offset 3"), []string{`expect: "a"`}, nil},
		{"offsets of one byte", get("path /\nregex a\nregex_min_offset 5\nregex_max_offset 5"), []string{"there is no regex_min_offset, no regex_max_offset"}, []string{"expect"}},
		{"offset before another", get("path /\nregex a\nregex_min_offset 6\nregex_max_offset 5"), []string{`expect: "a"`}, nil},
		{"offset of the first byte", get("path /\nregex a\nregex_max_offset 0"), []string{"there is no regex_max_offset"}, []string{"expect"}},
		{"offset that is none", get("path /\nregex a\nregex_min_offset x"), []string{`expect: "a"`, "x:7: regex_min_offset x: want one number: 0, as keepalived"}, nil},
		{"payload twice", "UDP_CHECK {\npayload 00\npayload 01\nrequire_reply\nrequire_reply\nmin_reply_length 3\n}", []string{`udp: {send_hex: "01", expect: ".*"}`, "x:8: min_reply_length 3: the length of replies is not compared"}, nil},
		{"sni_name", "SSL_GET {\nsni_name b.example\nurl {\npath /\n}\n}", []string{`server_name: "b.example"`}, []string{"Not carried"}},
		{"types of DNS_CHECK", "DNS_CHECK {\ntype dnskey\nname a..b\nname example.org\nname example.com\n}", []string{"6578616d706c65036f72670000300001", "x:5: name a..b", "x:7: name example.com"}, nil},
		{"hosts of SMTP_CHECK", "SMTP_CHECK {\nconnect_port 25\nhost {\nconnect_timeout 2\nconnect_port 26\nretry 7\n}\nhost {\n}\n}", []string{
			"port: 25", "port: 26", "fall: 8", "timeout: 2 s", "checks: [smtp, smtp-2, smtp-3]", "x:10: host: has no connect_timeout, and keepalived waits 0 s: 5 s"}, []string{"fall: 2"}},
		{"program relative to a directory", "MISC_CHECK {\nmisc_path bin/check\n}", []string{`command: ["/bin/check"]`, "x:4: misc_path bin/check: want an absolute path: /bin/check"}, nil},
		{"notify twice", "notify_up /bin/a\nnotify_up /bin/b", []string{`notify_up: ["/bin/a"]`, "x:4: notify_up /bin/b: the notify_up before counts"}, nil},
		{"retry after the next check", "delay_loop 2\ndelay_before_retry 9\nTCP_CHECK {\nconnect_timeout 1\n}", []string{"x:5: retry after 9 s: longer than the interval of 2 s"}, []string{"fast_interval"}},
		{"key of a server", "PING_CHECK {\nweight 3\n}", []string{"x:4: weight 3: not a keyword of PING_CHECK: left out, as by keepalived", "weight: 1"}, nil},
	} {
		one.run(t, "virtual_server 10.0.0.1 80 {\nreal_server 10.0.1.1 80 {\n"+one.text+"\n}\nprotocol TCP\n}")
	}
}

func TestKeepalivedGlobals(t *testing.T) {
	virtual := "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nMISC_CHECK {\nmisc_path /bin/check\n}\n}\n}"
	for _, one := range []translation{
		{"script_user", "global_defs {\nscript_user nagios nagios\n}", []string{`script_user: "nagios"`}, []string{"nobody", "Not carried"}},
		{"group", "global_defs {\nscript_user nagios ops\n}", []string{`script_user: "nagios"`, "x:2: script_user nagios ops: scripts run with the groups that nagios has, not with group ops alone"}, nil},
		{"mail", "global_defs {\nnotification_email {\na@b.org\n}\n}", []string{`mail_to: ["a@b.org"]`, "x:2: notification_email: mail is sent of servers, services and alarms"}, nil},
		{"alerts", "global_defs {\nnotification_email {\na@b.org\n}\nsmtp_alert\n}", []string{"x:5: smtp_alert: mail is sent of all"}, []string{"x:2"}},
		{"timeouts", "global_defs {\nlvs_timeouts tcp 900 udp\n}", []string{"tcp: 900 s", "want pairs"}, nil},
		{"flush", "global_defs {\nlvs_flush\nlvs_flush_on_stop\n}", []string{"x:2: lvs_flush: not supported: services that the file does not name stay: delete them with imbang ipvsadm -D", "x:3: lvs_flush_on_stop: not supported"}, nil},
	} {
		one.run(t, one.text+"\n"+virtual)
	}
}

// refused is what the configuration's reader says, as imbang import has it.
func refused(text []byte) (list []Mistake) {
	_, err := config.Parse("imbang.yaml", text)
	var mistakes config.Mistakes
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			var at *strictyaml.Mistake
			if errors.As(m, &at) {
				list = append(list, Mistake{at.Line, at.Path, at.Text})
			}
		}
	}
	return list
}

// What the reader of configurations refuses is listed with the line that it came from.
func TestCheckNamesSource(t *testing.T) {
	r, err := importOne(t, "x", []byte("virtual_server 10.0.0.1 80 {\npersistence_engine sip\nprotocol TCP\nreal_server 10.0.1.1 80 {\n}\nreal_server 224.0.0.1 80 {\n}\n}\n"), Source{})
	if err != nil {
		t.Fatal(err)
	}
	r.Check(refused)
	r.Check(func([]byte) []Mistake { return []Mistake{{0, "", "too much of it"}} })
	got := string(r.YAML())
	for _, want := range []string{
		"x:1: services[0].engine: imbang check refuses what it became: is used only with persistence",
		"x: the whole configuration: imbang check refuses what it became: too much of it",
		"x:6: real_server 224.0.0.1 80: is not the address of a single host, and Linux refuses it: left out",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
