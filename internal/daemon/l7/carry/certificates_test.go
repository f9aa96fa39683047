// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxytest"
)

// The last good certificate is what is used, whatever becomes of the file.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "shop.pem")
	config := &l7.Config{Listeners: []l7.Listener{{Name: "plain"}, {Name: "shop", TLS: &l7.TLS{Certificates: []string{path}, HSTS: 1}}}}
	write := func(text string) {
		t.Helper()
		// As programs do that renew certificates: by another file of the name.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	c := newCertificates(filepath.Join(dir, "run"))
	inUse := func() string {
		t.Helper()
		out, err := c.use(config)
		if err != nil {
			t.Fatal(err)
		}
		if config.Listeners[1].TLS.Certificates[0] != path || out.Listeners[1].TLS.HSTS != 1 {
			t.Fatalf("%+v", out.Listeners[1].TLS)
		}
		text, err := os.ReadFile(out.Listeners[1].TLS.Certificates[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if !c.look(config) {
		t.Error("a file that is missing is not noticed")
	}
	if _, err := c.use(config); err == nil || !strings.Contains(err.Error(), "listener shop") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a file: %v", err)
	}
	first, second := haproxytest.Certificate(t, "first.example"), haproxytest.Certificate(t, "second.example")
	write(first)
	if !c.look(config) || inUse() != first || len(c.problems()) > 0 {
		t.Errorf("the first one: %v", c.problems())
	}
	if c.look(config) == false && !c.fresh[path] {
		t.Error("it is taken for loaded before it was")
	}
	c.reloaded()
	if c.look(config) {
		t.Error("a change without one")
	}
	end := strings.Index(second, "-----END EC")
	for name, text := range map[string]string{"half of it": second[:end/2], "without a key": second[:strings.Index(second, "-----BEGIN EC")], "nothing": "", "another key": first[:strings.Index(first, "-----BEGIN EC")] + second[strings.Index(second, "-----BEGIN EC"):]} {
		write(text)
		if !c.look(config) || inUse() != first || c.problems()[path] == "" {
			t.Errorf("%s: %v", name, c.problems())
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !c.look(config) || inUse() != first || !strings.Contains(c.problems()[path], "no such file") {
		t.Errorf("removed: %v", c.problems())
	}
	write(second)
	if !c.look(config) || inUse() != second || len(c.problems()) > 0 || !c.fresh[path] {
		t.Errorf("the second one: %v", c.problems())
	}
	if at := c.expiries(config)[path]; time.Until(at) < time.Minute {
		t.Errorf("it expires at %v", at)
	}
	if none := c.expiries(&l7.Config{}); len(none) > 0 {
		t.Errorf("of a configuration without certificates: %v", none)
	}
	// Another Keeper goes on with the copies.
	other := newCertificates(filepath.Join(dir, "run"))
	if other.look(config) || other.fresh[path] {
		t.Error("what was copied already is taken for new")
	}
	info, err := os.Stat(c.copyOf(path))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
