// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"imbang/internal/lab/process"
)

// nginx is nginx as a proxy, passing on connections (stream) or reading
// requests (http).
func nginx(mode string) *proxy {
	schedulers := map[string]string{
		"rr": "", "least_conn": "least_conn;", "hash": "hash $remote_addr consistent;", "random": "random;",
	}
	remedy := "apt install nginx-light"
	p := &proxy{
		name: "nginx-" + mode, program: "nginx", remedy: remedy, version: []string{"-v"}, schedulers: schedulers,
		arguments: func(file, dir string) []string {
			return []string{"-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log")}
		},
	}
	if mode == "http" {
		schedulers["ip_hash"] = "ip_hash;"
		p.config = func(s Setup, scheduler string) string {
			server := nginxHTTP
			if s.TLS {
				server = fmt.Sprintf(nginxTLS, s.listenTLS(), s.certificate()) + nginxHTTP
			}
			return nginxConfig("", "http", nginxKeepAlive, server, s, scheduler)
		}
		return p
	}
	load := sync.OnceValues(streamModule)
	p.missing = func() error {
		_, err := load()
		return err
	}
	p.config = func(s Setup, scheduler string) string {
		module, _ := load() // without it there is nothing to run, which missing says
		return nginxConfig(module, "stream", "", nginxStream, s, scheduler)
	}
	return p
}

// streamModule is the line that loads the stream module, empty where it is
// built in.
func streamModule() (string, error) {
	path, err := process.Look("nginx", "apt install nginx-light")
	if err != nil {
		return "", err
	}
	out, _ := exec.Command(path, "-V").CombinedOutput()
	if strings.Contains(string(out), "--with-stream ") {
		return "", nil
	}
	for _, dir := range []string{"/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/etc/nginx/modules"} {
		file := filepath.Join(dir, "ngx_stream_module.so")
		if _, err := os.Stat(file); err == nil {
			return "load_module " + file + ";\n", nil
		}
	}
	return "", errors.New("nginx has no stream module: apt install libnginx-mod-stream")
}

// nginxConfig is the whole configuration, tuned by the documentation at
// nginx.org/en/docs:
//   - worker_processes auto: one worker for each CPU (ngx_core_module).
//   - reuseport: a listening socket for each worker, so that the kernel
//     distributes connections (ngx_http_core_module, listen). On two CPUs it
//     raises the rate of requests and lowers latency and CPU time by 5 to 10 %,
//     and lowers the rate of new connections by 9 %.
//   - zone: the workers share the state of the balancing, so that weights and
//     least_conn hold for all connections, not those of one worker
//     (ngx_http_upstream_module, ngx_stream_upstream_module).
//
// The lab adds room for any burst, and no access log. load and keep are lines
// for one kind of block.
func nginxConfig(load, block, keep, server string, s Setup, scheduler string) string {
	var servers strings.Builder
	if scheduler != "" {
		fmt.Fprintf(&servers, "        %s\n", scheduler)
	}
	for i, b := range s.backends() {
		fmt.Fprintf(&servers, "        server %s weight=%d;\n", b, s.Weights[i])
	}
	return load + fmt.Sprintf(`daemon off;
user root;
worker_processes auto;
worker_rlimit_nofile 65536;
pid nginx.pid;
error_log error.log warn;
events { worker_connections 32768; }
%[1]s {
    access_log off;
    upstream real {
        zone real 64k;
%[2]s%[3]s    }
    server {
        listen %[4]s backlog=65535 reuseport;
%[5]s    }
}
`, block, servers.String(), keep, s.listen(), server)
}

// nginxKeepAlive keeps idle connections to the servers, 128 for each worker,
// as nginx's guide "Tuning NGINX for Performance" shows it. It follows the
// method of balancing, as ngx_http_upstream_module requires.
const nginxKeepAlive = `        keepalive 128;
`

const nginxStream = `        proxy_pass real;
`

// nginxTLS ends TLS, with a cache of sessions that the workers share, and with the versions that
// nginx.org/en/docs/http/configuring_https_servers.html shows: nginx before 1.23.4 does not speak TLS 1.3 unless it is
// told to, and sessions of 1.2 go on without a key exchange.
const nginxTLS = `        listen %[1]s ssl http2 backlog=65535 reuseport;
        ssl_certificate %[2]s;
        ssl_certificate_key %[2]s;
        ssl_session_cache shared:SSL:10m;
        ssl_protocols TLSv1.2 TLSv1.3;
`

// nginxHTTP speaks HTTP/1.1 with servers and does not pass the client's
// Connection header on: both are required for keepalive
// (ngx_http_upstream_module). Replies wait in memory, not in files on the disk
// (ngx_http_proxy_module, proxy_max_temp_file_size).
const nginxHTTP = `        location / {
            proxy_pass http://real;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_max_temp_file_size 0;
        }
`
