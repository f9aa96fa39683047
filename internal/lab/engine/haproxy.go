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
		config: func(s Setup, scheduler string) string {
			var servers strings.Builder
			for i, b := range s.backends() {
				fmt.Fprintf(&servers, "    server %s %s weight %d\n", s.Servers[i].Name, b, s.Weights[i])
			}
			secure := ""
			if s.TLS && mode == "http" {
				secure = fmt.Sprintf("    bind %s ssl crt %s alpn h2,http/1.1 backlog 65535\n", s.listenTLS(), s.certificate())
			}
			return fmt.Sprintf(haproxyConfig, connections(), mode, s.listen(), scheduler, servers.String(), haproxyModes[mode], secure)
		},
		arguments: func(file, _ string) []string { return []string{"-db", "-f", file} },
	}
}

// connections is how many HAProxy can hold. Each has two descriptors, and for
// every four of them there may be a pipe, which has two as well (maxpipes,
// configuration manual 3.2); it refuses to start without those it might need.
func connections() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 400
	}
	return min(r.Max-min(r.Max/2, 200), 125_000) * 2 / 5
}

// haproxyModes are the lines of one mode alone.
var haproxyModes = map[string]string{"tcp": "", "http": haproxyReuse}

// haproxyReuse lets the first request of a client's connection use one to the
// server that is open already (http-reuse, configuration manual 4.2), as nginx
// does by its keepalive. "aggressive" reuses only what has been reused before,
// which connections of one request each never are; "always" is for servers
// that do not close idle connections soon. The lab's keep them open for at
// least 75 s, HAProxy half of its idle ones for 5 s (pool-purge-delay).
const haproxyReuse = `    http-reuse always
`

// haproxyConfig is tuned by the configuration manual of version 2.6:
//   - There is no nbthread: by default it is the number of CPUs that the
//     process may use (3.1).
//   - splice-response forwards replies within the kernel wherever possible,
//     splice-auto what HAProxy finds worth while (4.2). The heuristics of the
//     latter did not splice a single byte of a reply of 200 MB between local
//     servers. Splicing all replies took a third of HAProxy's CPU time off such
//     a reply, and added a tenth to one of 375 bytes in TCP mode.
//   - tcp-smart-connect sends the request with the last packet of the
//     handshake, for protocols in which the client speaks first (4.2).
//
// The lab adds room for any burst, and no log or health checks. Timeouts are
// those of Debian's package.
const haproxyConfig = `global
    maxconn %[1]d
defaults
    mode %[2]s
    option splice-auto
    option splice-response
    option tcp-smart-connect
%[6]s    timeout connect 5s
    timeout client 50s
    timeout server 50s
listen web
    bind %[3]s backlog 65535
%[7]s    balance %[4]s
%[5]s`
