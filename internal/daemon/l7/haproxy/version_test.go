// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"os"
	"path/filepath"
	"testing"
)

func TestVersionOf26(t *testing.T) {
	v := of26(t)
	if v.Major != 2 || v.Minor != 6 || v.Text != "2.6.12-1+deb12u4" {
		t.Errorf("read %d.%d, %q", v.Major, v.Minor, v.Text)
	}
	if !v.Features["OPENSSL"] || v.Features["QUIC"] || !v.Features["PCRE2"] {
		t.Errorf("features: %v", v.Features)
	}
	if !v.AtLeast(2, 6) || !v.AtLeast(1, 9) || v.AtLeast(2, 7) || v.AtLeast(3, 0) {
		t.Error("versions are compared wrongly")
	}
}

func TestVersionsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"nginx version: nginx/1.22.1\n":                                          `haproxy -vv prints no line "HAProxy version ...": is it HAProxy?`,
		"HA-Proxy version 2.2.9-2+deb11u6 2023/12/07\nFeature list : +OPENSSL\n": "HAProxy 2.2.9-2+deb11u6: imbang requires 2.6 or later: install Debian 12's or later",
		"HAProxy version 3.0.1 2024/06/10\nFeature list : -OPENSSL +QUIC\n":      "HAProxy 3.0.1 is built without OpenSSL: install Debian's",
	} {
		if _, err := ParseVersion(text); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\nexpected:\n%s", text, err, want)
		}
	}
}

func TestDetection(t *testing.T) {
	v, err := Detect(t.Context(), program(t))
	if err != nil || v.Text == "" {
		t.Errorf("%v, %v", v, err)
	}
	// A program that fails says why, and is not to be installed: it is there.
	script := filepath.Join(t.TempDir(), "haproxy")
	for _, c := range []struct{ program, text, want string }{
		{"/nonexistent/haproxy", "", "/nonexistent/haproxy: fork/exec /nonexistent/haproxy: no such file or directory: install the package haproxy"},
		{script, "#!/bin/sh\necho 'haproxy: error while loading shared libraries: libcrypt.so.1:\n cannot open' >&2; exit 127\n",
			script + " -vv: exit status 127: haproxy: error while loading shared libraries: libcrypt.so.1: cannot open: repair this program, as by apt-get install --reinstall haproxy"},
		{script, "#!/bin/sh\nkill -9 $$\n", script + " -vv: signal: killed: repair this program, as by apt-get install --reinstall haproxy"},
		{script, "\x7fELF", script + " -vv: fork/exec " + script + ": exec format error: repair this program, as by apt-get install --reinstall haproxy"},
	} {
		if c.program == script {
			if err := os.WriteFile(script, []byte(c.text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Detect(t.Context(), c.program); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n%v\nexpected:\n%s", c.text, err, c.want)
		}
	}
}
