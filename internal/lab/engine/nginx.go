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
		p.config = func(s Setup, scheduler, _ string) string { return nginxConfig("", "http", nginxHTTP, s, scheduler) }
		return p
	}
	load := sync.OnceValues(streamModule)
	p.missing = func() error {
		_, err := load()
		return err
	}
	p.config = func(s Setup, scheduler, _ string) string {
		module, _ := load() // without it there is nothing to run, which missing says
		return nginxConfig(module, "stream", nginxStream, s, scheduler)
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

// nginxConfig is the whole configuration: the package's, with the workers that
// the machine has CPUs, room for bursts, and no access log.
func nginxConfig(load, block, server string, s Setup, scheduler string) string {
	var servers strings.Builder
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
        %[2]s
%[3]s    }
    server {
        listen %[4]s backlog=65535;
%[5]s    }
}
`, block, scheduler, servers.String(), s.listen(), server)
}

const nginxStream = `        proxy_pass real;
`

const nginxHTTP = `        location / {
            proxy_pass http://real;
        }
`
