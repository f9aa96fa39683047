// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"imbang/internal/lab/study"
)

// config is the whole configuration of one server. It differs from a default
// one where that would measure something else: no access log (disk), one
// worker (the three servers share the machine's CPUs), a listen queue that
// holds any burst, and the page kept open, which all URLs of a study have. Only
// large files are sent without a copy: for a page it costs more than it saves.
// The worker stays root because the directory is private to the run.
const config = `daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile %[1]d;
pid nginx.pid;
error_log error.log warn;
events {
    worker_connections %[2]d;
}
http {
    access_log off;
    default_type text/html;
    open_file_cache max=16;
    client_body_temp_path temp;
    proxy_temp_path temp;
    fastcgi_temp_path temp;
    uwsgi_temp_path temp;
    scgi_temp_path temp;
    server {
        listen %[3]d backlog=65535;
        listen [::]:%[3]d backlog=65535;
        root %[8]s;
        add_header %[4]s %[5]s always;
        location %[6]s {
            try_files /index.html =404;
        }
        location %[7]s {
            sendfile on;
            tcp_nopush on;
        }
    }
}
`

// LargeFiles begins the paths of files that are sent as fast as nginx can; there is one, 1MiB.
const LargeFiles = "/large/"

// descriptors is how many files a worker may open. Raising the hard limit
// needs a privilege that root in a container may lack, so it is taken as it
// is.
func descriptors() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int(min(r.Max, 65536))
}

// write fills the server's directory.
func (n *nginx) write() error {
	for _, d := range []string{"html", "html" + LargeFiles, "temp"} {
		if err := os.MkdirAll(filepath.Join(n.dir, d), 0o755); err != nil {
			return err
		}
	}
	files := descriptors()
	// Some descriptors are not connections: logs, the page, epoll.
	text := fmt.Sprintf(config, files, files-32, Port, Header, n.name, study.NginxURLs, LargeFiles, strconv.Quote(cmp.Or(n.spec.Content, "html")))
	if err := os.WriteFile(filepath.Join(n.dir, "nginx.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "html", LargeFiles, "1MiB"), page(1<<20), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, "html", "index.html"), page(n.page), 0o644)
}

// page is an HTML page of exactly n bytes.
func page(n int) []byte {
	const head, tail = "<!DOCTYPE html><title>imbang</title><p>", "</p>\n"
	if n < len(head)+len(tail) {
		return []byte(strings.Repeat("x", n))
	}
	return []byte(head + strings.Repeat("x", n-len(head)-len(tail)) + tail)
}
