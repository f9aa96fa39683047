// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
)

// The doctor looks at the configuration of the daemon that runs, and says what is wrong with HAProxy when the daemon has
// an alarm of it.
func TestLayer7Doctor(t *testing.T) {
	h := haproxytest.New(t)
	w := prepared(t, h, "s")
	w.configure(webConfig("", webServers...))
	paths := os.Getenv("PATH")
	for name, c := range map[string]struct {
		haproxy     string // script; "": none is installed
		alarm, says string
	}{
		"missing": {"", "install the package haproxy", "imbang.yaml has listeners, which require HAProxy 2.6 or later: HAProxy is not installed: apt-get install haproxy"},
		"old": {"echo 'HAProxy version 2.4.22-1 2023/02/14 - https://haproxy.org/'; echo 'Feature list : +OPENSSL'",
			"imbang requires 2.6 or later", "imbang.yaml has listeners, and HAProxy cannot be used: HAProxy 2.4.22-1: imbang requires 2.6 or later"},
		"broken": {"echo 'haproxy: error while loading shared libraries: libcrypt.so.1: cannot open' >&2; exit 127",
			"exit status 127: haproxy: error while loading shared libraries: libcrypt.so.1", "haproxy -vv: exit status 127: haproxy: error while loading shared libraries: libcrypt.so.1: cannot open: repair this program"},
	} {
		func() {
			bin := t.TempDir()
			t.Setenv("PATH", bin)
			if c.haproxy != "" {
				if err := os.WriteFile(filepath.Join(bin, "haproxy"), []byte("#!/bin/sh\n"+c.haproxy+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Setenv("PATH", bin+":"+paths)
			}
			defer w.end()
			w.daemon = w.begin("run", "-c", "imbang.yaml", "--state", w.path("state")) // begin changes to the directory
			w.await("the daemon has the alarm", func() bool {
				return strings.Contains(imbang(t, h.Namespace(), "", "status").stdout, c.alarm)
			})
			if o := imbang(t, h.Namespace(), "", "doctor"); o.status != 1 || !strings.Contains(o.stdout, "problem  proxy: "+w.path("imbang.yaml")+" has listeners") || !strings.Contains(o.stdout, c.says) {
				t.Errorf("%s: status %d, %s%s, want %q of %s", name, o.status, o.stdout, o.stderr, c.says, w.dir)
			}
		}()
	}
}

// Without the daemon, the doctor looks at the configuration of the proxy that runs, and advises no end of it.
func TestLayer7DoctorOfProxy(t *testing.T) {
	h := haproxytest.New(t)
	w := prepared(t, h, "s")
	w.configure(webConfig("", webServers...))
	t.Cleanup(w.end)
	w.proxy = w.begin("proxy", "-c", "imbang.yaml", "--grace", "1s") // begin changes to the directory
	w.await("HAProxy runs", func() bool { return w.haproxy().Phase == supervise.Running })
	w.certificate("none")
	o := imbang(t, h.Namespace(), "", "doctor")
	for _, want := range []string{"listener secure: the certificate " + w.path("shop.pem") + " cannot be used", w.path("imbang.yaml") + " has listeners alone", "imbang run does not run"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("no %q in\n%s%s", want, o.stdout, o.stderr)
		}
	}
	for _, never := range []string{"forwarding", "disable"} {
		if strings.Contains(o.stdout, never) {
			t.Errorf("%q in\n%s", never, o.stdout)
		}
	}
}
