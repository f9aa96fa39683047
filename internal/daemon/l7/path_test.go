// SPDX-License-Identifier: Apache-2.0

package l7

import "testing"

func TestNormalPath(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "": "/", "*": "/", "/admin": "/admin", "/%61dmin": "/admin", "//admin": "/admin", "/a%2F%5cb": "/a/b", `\a\\b`: "/a/b", "/a%252fb": "/a%2fb",
		"/a+b": "/a+b", "/.well-known/x": "/.well-known/x", "/a..b/...": "/a..b/...", "/a/": "/a/", "/a%20b": "/a b", "/%C3%A9": "/é",
		"/x/../a": "", "/x/%2e%2E/a": "", "/x/..%2fa": "", "/..": "", "/.": "", "/a/./b": "", "/%": "", "/%zz": "", "/a%00": "", "/a%0A": "", "/a%2500": "/a%00", `/x\..\a`: "",
		"/x/..;/a": "", "/x/.;a=b/a": "", "/x/%2e%2E;": "", "/x/..%3ba": "", "/;/a": "", "/x/;a=b/a": "", "/%3B/a": "", "/;a": "/;a", "/x/;a": "/x/;a", "/x;a=b/c;d": "/x;a=b/c;d", "/..a;b/...;c": "/..a;b/...;c",
		"*/admin": "", "admin": "",
	} {
		if got, err := NormalPath(path); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v, want %q", path, got, err, want)
		}
	}
}
