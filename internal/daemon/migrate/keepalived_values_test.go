// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"strings"
)

// numberForms are words where a number is wanted: in bounds, out of them, zero, and none.
var numberForms = []string{
	"0", "1", "-1", "+3", "x", "5x", "1.5", ".5", "0.0000004", "0.0000016", "0.01", "999", "1000",
	"4294", "4294.967295", "4294.967296", "4295", "65535", "65536", "2678400", "2678401",
	"2147483648", "4294967295", "4294967296", "99999999999999999999",
}

// judgedCase is a virtual server in which one line is tried, the one with a mark.
type judgedCase struct{ id, text, sets string }

// sets are the values of a reading that keywords set; "": any.
var sets = map[string]string{
	"delay_loop": "interval", "connect_timeout": "timeout", "misc_timeout": "timeout", "delay_before_retry": "retry after",
	"retry": "retries", "nb_get_retry": "retries", "warmup": "warmup", "weight": "weight", "quorum": "quorum", "hysteresis": "hysteresis",
	"persistence_timeout": "persistence", "connect_port": "port",
}

const tried = " #tried"

// line is the number of the line that is tried.
func (c judgedCase) line() int {
	return strings.Count(c.text[:strings.Index(c.text, tried)], "\n") + 1
}

// layout is a virtual server around a line that is tried: each part is lines of a block.
type layout struct{ head, virtual, real, kind, check string }

func (l layout) text(n int) string {
	head := l.head
	if head == "" {
		head = fmt.Sprintf("virtual_server %s 80", caseAddress(n))
	}
	server := "real_server 172.16.0.1 80"
	if at, rest, own := strings.Cut(l.real, "\n"); own && strings.HasPrefix(at, "real_server") {
		server, l.real = at, rest
	}
	check := ""
	if l.kind != "" {
		check = fmt.Sprintf("%s {\n%s}\n", l.kind, l.check)
	}
	return fmt.Sprintf("%s {\nvirtualhost case-%d\nprotocol TCP\nlb_algo rr\nlb_kind NAT\n%s%s {\n%s%s}\n}\n", head, n, l.virtual, server, l.real, check)
}

// caseAddress is the virtual address of a case.
func caseAddress(n int) string { return fmt.Sprintf("10.%d.%d.1", 1+n/250, n%250) }

// judgedLines are the keywords with numbers, and how the line is put in: %s is the line.
var judgedLines = []struct {
	block, keyword string
	layout
	words []string // nil: numberForms
}{
	{"virtual_server", "delay_loop", layout{virtual: "connect_timeout 0.001\n%s", kind: "TCP_CHECK"}, nil},
	{"virtual_server", "connect_timeout", layout{virtual: "delay_loop 5000\n%s", kind: "TCP_CHECK"}, nil},
	{"virtual_server", "delay_before_retry", layout{virtual: "delay_loop 5000000\n%s", kind: "TCP_CHECK"}, nil},
	{"virtual_server", "retry", layout{virtual: "%s", kind: "TCP_CHECK"}, nil},
	{"virtual_server", "warmup", layout{virtual: "%s", kind: "TCP_CHECK"}, nil},
	{"virtual_server", "weight", layout{virtual: "%s"}, nil},
	{"virtual_server", "quorum", layout{virtual: "%sweight 2147483647\n"}, nil},
	{"virtual_server", "hysteresis", layout{virtual: "weight 2147483647\nquorum 2147483647\n%s"}, nil},
	{"virtual_server", "persistence_timeout", layout{virtual: "%s"}, nil},
	{"virtual_server", "persistence_granularity", layout{virtual: "%s"}, []string{"255.255.255.0", "255.0.255.0", "0.0.0.0", "24", "33", "x", "255.255.255.255", "::1"}},
	{"real_server", "delay_loop", layout{virtual: "connect_timeout 0.001\n", real: "%s", kind: "TCP_CHECK"}, nil},
	{"real_server", "connect_timeout", layout{virtual: "delay_loop 5000\n", real: "%s", kind: "TCP_CHECK"}, nil},
	{"real_server", "delay_before_retry", layout{virtual: "delay_loop 5000000\n", real: "%s", kind: "TCP_CHECK"}, nil},
	{"real_server", "retry", layout{virtual: "retry 4\n", real: "%s", kind: "TCP_CHECK"}, nil},
	{"real_server", "warmup", layout{virtual: "warmup 4\n", real: "%s", kind: "TCP_CHECK"}, nil},
	{"real_server", "weight", layout{virtual: "weight 4\n", real: "%s"}, nil},
	{"real_server", "uthreshold", layout{real: "%s"}, nil},
	{"real_server", "lthreshold", layout{real: "uthreshold 2147483647\n%s"}, nil},
	{"checker", "delay_loop", layout{virtual: "connect_timeout 0.001\n", kind: "TCP_CHECK", check: "%s"}, nil},
	{"checker", "connect_timeout", layout{virtual: "delay_loop 5000\n", kind: "TCP_CHECK", check: "%s"}, nil},
	{"checker", "delay_before_retry", layout{virtual: "delay_loop 5000000\n", kind: "TCP_CHECK", check: "%s"}, nil},
	{"checker", "retry", layout{real: "retry 4\n", kind: "TCP_CHECK", check: "%s"}, nil},
	{"checker", "warmup", layout{real: "warmup 4\n", kind: "TCP_CHECK", check: "%s"}, nil},
	{"checker", "connect_port", layout{kind: "TCP_CHECK", check: "%s"}, nil},
	{"HTTP_GET", "nb_get_retry", layout{kind: "HTTP_GET", check: "url {\npath /\n}\n%s"}, nil},
	{"HTTP_GET", "retry", layout{kind: "HTTP_GET", check: "url {\npath /\n}\n%s"}, nil},
	{"SSL_GET", "nb_get_retry", layout{kind: "SSL_GET", check: "url {\npath /\n}\n%s"}, nil},
	{"MISC_CHECK", "misc_timeout", layout{virtual: "delay_loop 5000\n", kind: "MISC_CHECK", check: "misc_path /bin/true\n%s"}, nil},
	{"MISC_CHECK", "retry", layout{kind: "MISC_CHECK", check: "misc_path /bin/true\n%s"}, nil},
	{"DNS_CHECK", "retry", layout{kind: "DNS_CHECK", check: "%s"}, nil},
	{"SMTP_CHECK", "retry", layout{kind: "SMTP_CHECK", check: "%s"}, nil},
	{"host", "connect_port", layout{kind: "SMTP_CHECK", check: "host {\nconnect_timeout 2\n%s}\n"}, nil},
	{"host", "connect_timeout", layout{virtual: "delay_loop 5000\n", kind: "SMTP_CHECK", check: "connect_port 25\nhost {\nconnect_port 26\n%s}\n"}, nil},
	{"host", "retry", layout{kind: "SMTP_CHECK", check: "host {\nconnect_timeout 2\nconnect_port 26\n%s}\n"}, nil},
	{"UDP_CHECK", "retry", layout{kind: "UDP_CHECK", check: "payload 00\n%s"}, nil},
	{"PING_CHECK", "retry", layout{kind: "PING_CHECK", check: "%s"}, nil},

	{"virtual_server", "alpha", layout{virtual: "%s", kind: "TCP_CHECK"}, booleanForms},
	{"virtual_server", "inhibit_on_failure", layout{virtual: "%s", kind: "TCP_CHECK"}, booleanForms},
	{"real_server", "alpha", layout{virtual: "alpha\n", real: "%s", kind: "TCP_CHECK"}, booleanForms},
	{"real_server", "inhibit_on_failure", layout{virtual: "inhibit_on_failure\n", real: "%s"}, booleanForms},
	{"checker", "alpha", layout{real: "alpha\n", kind: "TCP_CHECK", check: "%s"}, booleanForms},
	{"virtual_server", "lb_algo", layout{virtual: "%s"}, []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "mh", "dh", "fo", "ovf", "sed", "nq", "twos", "RR", "none"}},
	{"virtual_server", "lvs_sched", layout{virtual: "%s"}, []string{"mh", "x"}},
	{"virtual_server", "protocol", layout{virtual: "%s"}, []string{"TCP", "udp", "Sctp", "icmp"}},
	{"virtual_server", "lb_kind", layout{virtual: "%s"}, []string{"NAT", "DR", "TUN", "nat", "x"}},
	{"virtual_server", "lvs_method", layout{virtual: "%s"}, []string{"NAT", "DR", "tun"}},
	{"real_server", "lvs_method", layout{real: "%s"}, []string{"NAT", "DR", "TUN", "dr"}},
	{"real_server", "lb_kind", layout{real: "%s"}, []string{"DR"}},
	{"virtual_server", "ip_family", layout{virtual: "%s"}, []string{"inet", "inet6", "ipv4"}},
	{"virtual_server", "ops", layout{virtual: "protocol UDP\n%s"}, []string{"", "1"}},
}

var booleanForms = []string{"", "true", "yes", "on", "false", "no", "off", "TRUE", "No", "0", "x"}

// judgedHeads are lines that open blocks, which are tried also.
var judgedHeads = []struct {
	id string
	layout
	words []string
}{
	{"address", layout{head: "virtual_server %s 80"}, []string{"192.0.2.1", "192.0.2.2/24", "192.0.2.3-5", "192.0.2", "x", "2001:db8::1", "192.0.2.4x"}},
	{"port", layout{head: "virtual_server 192.0.2.9 %s"}, []string{"0", "00", "1", "65535", "65536", "-1", "5x", "x", "080", "4294967297"}},
	{"fwmark", layout{head: "virtual_server fwmark %s"}, []string{"1", "4294967295", "4294967296", "-1", "5x", "x", "0x10"}},
	{"family", layout{head: "virtual_server 2001:db8::2 80", real: "real_server %s 80\n"}, []string{"2001:db8::3", "172.16.0.1"}},
	{"host", layout{kind: "SMTP_CHECK", check: "connect_port %s\nhost {\n}\n"}, []string{"26"}},
	{"server", layout{real: "real_server %s 80\n"}, []string{"172.16.0.2", "172.16.0.3/24", "172.16.0.4-5", "172.16", "x"}},
	{"server's port", layout{real: "real_server 172.16.0.9 %s\n"}, []string{"0", "00", "1", "65535", "65536", "-1", "5x", "x", "080"}},
}

// judgedCases are all cases, in the order of the file that keepalived reads.
func judgedCases() (all []judgedCase) {
	for _, one := range judgedLines {
		words := one.words
		if words == nil {
			words = numberForms
		}
		for _, w := range words {
			l := one.layout
			line := strings.TrimSpace(one.keyword+" "+w) + tried + "\n"
			for _, part := range []*string{&l.virtual, &l.real, &l.check} {
				*part = strings.ReplaceAll(*part, "%s", line)
			}
			all = append(all, judgedCase{one.block + " " + one.keyword + " " + w, l.text(len(all)), sets[one.keyword]})
		}
	}
	for _, one := range judgedHeads {
		for _, w := range one.words {
			l := one.layout
			for _, part := range []*string{&l.head, &l.real, &l.check} {
				*part = strings.ReplaceAll(*part, "%s", w)
			}
			head := cmp.Or(strings.TrimSpace(l.real), l.head, "host") + " {"
			all = append(all, judgedCase{one.id + " " + w, strings.Replace(l.text(len(all)), head, head+tried, 1), ""})
		}
	}
	return all
}

// judgedFile is the file of all cases, and the lines before each.
func judgedFile(all []judgedCase) (text string, before []int) {
	text = "global_defs {\nscript_user root\n}\n"
	for _, c := range all {
		before = append(before, strings.Count(text, "\n"))
		text += c.text
	}
	return text, before
}
