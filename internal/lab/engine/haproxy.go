// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var haproxySchedulers = map[string]string{
	"roundrobin": "roundrobin", "static-rr": "static-rr", "leastconn": "leastconn", "source": "source", "random": "random",
}

// haproxy is HAProxy passing on connections (tcp) or reading requests (http).
func haproxy(mode string) *proxy {
	schedulers := haproxySchedulers
	if mode == "http" {
		schedulers = map[string]string{"uri": "uri"}
		for k, v := range haproxySchedulers {
			schedulers[k] = v
		}
	}
	return &proxy{
		name: "haproxy-" + mode, program: "haproxy", remedy: "apt install haproxy", version: []string{"-v"},
		schedulers: schedulers,
		config: func(s Setup, scheduler, _ string) string {
			var servers strings.Builder
			for i, b := range s.backends() {
				fmt.Fprintf(&servers, "    server %s %s weight %d\n", s.Servers[i].Name, b, s.Weights[i])
			}
			threads := ""
			if s.Threads > 0 {
				threads = fmt.Sprintf("    nbthread %d\n", s.Threads)
			}
			return fmt.Sprintf(haproxyConfig, connections(), mode, s.listen(), scheduler, servers.String(), threads)
		},
		arguments: func(file, _ string) []string { return []string{"-db", "-f", file} },
	}
}

// connections is how many HAProxy can hold: each has two descriptors, and it
// refuses to start without those it might need.
func connections() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 400
	}
	return min(r.Max-min(r.Max/2, 200), 100_000) / 2
}

// haproxyConfig differs from the package's by what the lab asks for: no log,
// no health checks, room for any burst. Timeouts are the package's.
const haproxyConfig = `global
    maxconn %[1]d
%[6]sdefaults
    mode %[2]s
    timeout connect 5s
    timeout client 50s
    timeout server 50s
listen web
    bind %[3]s backlog 65535
    balance %[4]s
%[5]s`
