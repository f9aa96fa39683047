// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
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
	if _, err := c.useBut(config, newCertificates(dir)); err == nil || !strings.Contains(err.Error(), "listener shop") || !strings.Contains(err.Error(), "no such file") {
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
		c.look(config)
		if inUse() != first || c.problems()[path] == "" {
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
	// Another Keeper goes on with the copies. Whether HAProxy has loaded them is not known to it.
	c.fresh = map[string]bool{}
	other := newCertificates(filepath.Join(dir, "run"))
	if other.look(config) || !other.fresh[path] {
		t.Error("what an earlier Keeper copied is taken for new, or for loaded")
	}
	info, err := os.Stat(c.copyOf(path, pair))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// The problem of a file that is not named any more ends.
	write("damaged")
	if !c.look(config) || len(c.problems()) != 1 {
		t.Errorf("damaged: %v", c.problems())
	}
	c.look(&l7.Config{})
	if len(c.problems()) > 0 {
		t.Errorf("a file that is not named: %v", c.problems())
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A copy that could not be written is tried again, though the file is the same.
func TestCopyFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "shop.pem")
	put(t, path, haproxytest.Certificate(t, "shop.example"))
	config := &l7.Config{Listeners: []l7.Listener{{Name: "shop", TLS: &l7.TLS{Certificates: []string{path}}}}}
	c := newCertificates(dir)
	put(t, c.dir, "in the place of the directory")
	if !c.look(config) || len(c.problems()) != 1 {
		t.Errorf("%v", c.problems())
	}
	if c.look(config) {
		t.Error("the same problem is a change")
	}
	if err := os.Remove(c.dir); err != nil {
		t.Fatal(err)
	}
	if !c.look(config) || len(c.problems()) > 0 || c.copyOf(path, pair) == "" {
		t.Errorf("not tried again: %v", c.problems())
	}
	// Nor does it take a reload if somebody removes the copy.
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	if !c.look(config) || c.copyOf(path, pair) == "" {
		t.Error("a copy that was removed is not made again")
	}
}

// All kinds of files are copied. What never was good keeps nothing else from working, and a saved copy
// is used after a reboot.
func TestFilesOfAllKinds(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	config := &l7.Config{
		Listeners: []l7.Listener{
			{Name: "one", TLS: &l7.TLS{Certificates: []string{at("one.pem")}, ClientCA: at("ca.pem")}},
			{Name: "both", TLS: &l7.TLS{Certificates: []string{at("one.pem"), at("two.pem")}}, Routes: []l7.Route{{Target: l7.Target{Reply: &l7.Reply{Status: 200, File: at("page")}}}}},
			{Name: "two", TLS: &l7.TLS{Certificates: []string{at("two.pem")}}, Default: l7.Target{Reply: &l7.Reply{Status: 404, File: at("none")}}},
		},
		Backends: []l7.Backend{
			{Name: "web", TLS: &l7.ServerTLS{CA: at("authorities.pem"), Client: at("client.pem")}, Maintenance: &l7.Reply{Status: 503, File: at("page")}},
			{Name: "api", Maintenance: &l7.Reply{Status: 503, File: at("none")}},
			{Name: "text", Maintenance: &l7.Reply{Status: 503, Body: "later"}},
		},
	}
	one, two := haproxytest.Certificate(t, "one.example"), haproxytest.Certificate(t, "two.example")
	ca, _, _ := strings.Cut(one, "-----BEGIN EC")
	put(t, at("two.pem"), two)
	put(t, at("ca.pem"), ca)
	put(t, at("client.pem"), two)
	put(t, at("page"), "first")
	c := newCertificates(at("run"))
	c.saved, c.saves = at("saved"), true
	use := func() *l7.Config {
		t.Helper()
		c.look(config)
		out, err := c.use(config)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := use()
	if len(out.Listeners) != 2 || out.Listeners[0].Name != "both" || len(out.Listeners[0].TLS.Certificates) != 1 || out.Listeners[1].Name != "two" {
		t.Fatalf("%+v", out.Listeners)
	}
	if got := text(t, out.Listeners[0].Routes[0].Reply.File); got != "first" {
		t.Errorf("page %q", got)
	}
	if r := out.Listeners[1].Default.Reply; r.File != "" || r.Status != 404 {
		t.Errorf("%+v", r)
	}
	web := &out.Backends[0]
	if text(t, web.TLS.Client) != two || web.Maintenance.File != out.Listeners[0].Routes[0].Reply.File {
		t.Errorf("%+v", web)
	}
	if err := validateAuthorities([]byte(text(t, web.TLS.CA))); err != nil || !strings.HasSuffix(web.TLS.CA, "/nobody.pem") {
		t.Errorf("authorities %s: %v", web.TLS.CA, err)
	}
	if out.Backends[1].Maintenance != nil || out.Backends[2].Maintenance.Body != "later" || config.Backends[1].Maintenance.File == "" || config.Listeners[0].TLS.ClientCA != at("ca.pem") {
		t.Errorf("%+v", out.Backends)
	}
	problems := c.problems()
	for name, want := range map[string]string{"one.pem": "is not served", "none": "clients get no page", "authorities.pem": "no certificate is valid by it"} {
		if !strings.Contains(problems[at(name)], want) {
			t.Errorf("%s: %s", name, problems[at(name)])
		}
	}
	if len(problems) != 3 {
		t.Errorf("%v", problems)
	}
	if _, err := c.useBut(config, c); err == nil || !strings.Contains(err.Error(), "backend web: ca: ") || !strings.Contains(err.Error(), "\nbackend api: maintenance: "+at("none")) || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("a check: %v", err)
	}
	put(t, at("one.pem"), one)
	put(t, at("authorities.pem"), ca)
	put(t, at("none"), "none")
	out = use()
	if len(out.Listeners) != 3 || len(c.problems()) > 0 || text(t, out.Listeners[0].TLS.ClientCA) != ca || text(t, out.Backends[0].TLS.CA) != ca {
		t.Fatalf("%+v, %v", out.Listeners, c.problems())
	}
	// Another text has another name, so that a configuration that HAProxy has loaded stays whole.
	before := out.Listeners[0].TLS.ClientCA
	put(t, at("ca.pem"), ca+ca)
	if after := use().Listeners[0].TLS.ClientCA; after == before || text(t, before) != ca || text(t, after) != ca+ca {
		t.Errorf("%s, %s", before, after)
	}
	// Damaged: the last good one, also of another Keeper.
	half, _, _ := strings.Cut(two, "-----END CERT")
	for name, bad := range map[string]string{"ca.pem": ca + half, "one.pem": one + half, "client.pem": ca, "page": strings.Repeat("x", 15000)} {
		put(t, at(name), bad)
	}
	good := use()
	if len(c.problems()) != 4 || text(t, good.Listeners[0].TLS.ClientCA) != ca+ca || text(t, good.Backends[0].TLS.Client) != two || text(t, good.Backends[0].Maintenance.File) != "first" {
		t.Errorf("%v", c.problems())
	}
	c = newCertificates(at("run"))
	if again := use(); !reflect.DeepEqual(again, good) {
		t.Errorf("%+v\n%+v", again, good)
	}
	// After a reboot.
	if err := os.RemoveAll(at("run")); err != nil {
		t.Fatal(err)
	}
	c = newCertificates(at("run"))
	c.saved = at("saved")
	if booted := use(); !reflect.DeepEqual(booted, good) || len(c.problems()) != 4 || text(t, booted.Listeners[0].TLS.ClientCA) != ca+ca || !strings.Contains(c.problems()[at("one.pem")], kept) {
		t.Errorf("%+v, %v", booted.Listeners, c.problems())
	}
	if info, err := os.Stat(at("saved")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// What could not be loaded is loaded later. Other certificates do not wait for it.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	c := newCertificates(dir)
	config := &l7.Config{Listeners: []l7.Listener{{TLS: &l7.TLS{}}}}
	var named string
	for _, name := range []string{"a.pem", "b.pem", "elsewhere.pem"} {
		path := filepath.Join(dir, name)
		put(t, path, haproxytest.Certificate(t, name))
		config.Listeners[0].TLS.Certificates = append(config.Listeners[0].TLS.Certificates, path)
		if name != "elsewhere.pem" {
			named += filepath.Join(c.dir, nameOf(path, pair, nil)) + "\n"
		}
	}
	if err := os.Mkdir(supervise.Loaded(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(supervise.Loaded(dir), "certificates-shop"), named)
	c.look(config)
	if err := c.load(t.Context(), dir); !errors.Is(err, runtime.ErrNotRunning) || len(c.fresh) != 3 {
		t.Errorf("HAProxy does not run: %v, %v", err, c.fresh)
	}
	haproxy := newWorker(t, dir) // refuses what it does not know
	err := c.load(t.Context(), dir)
	for _, name := range []string{"a.pem", "b.pem"} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	haproxy.mu.Lock()
	defer haproxy.mu.Unlock()
	if said := strings.Join(haproxy.said, "\n"); strings.Contains(said, stem(filepath.Join(dir, "elsewhere.pem"))) {
		t.Errorf("said %s", said)
	}
	if len(c.fresh) != 3 {
		t.Errorf("%v", c.fresh)
	}
}

// After a boot, HAProxy starts with the certificates that were saved, and without the listeners whose
// certificate is damaged and was not.
func TestFirst(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs HAProxy: install the package haproxy")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	config := &l7.Config{}
	for i, name := range []string{"damaged", "saved", "good"} {
		config.Listeners = append(config.Listeners, l7.Listener{
			Name: name, Bind: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(8443+i))}, TLS: &l7.TLS{Certificates: []string{at(name)}},
			Default: l7.Target{Reply: &l7.Reply{Status: 200}},
		})
		put(t, at(name), "nothing")
	}
	put(t, at("good"), haproxytest.Certificate(t, "good.example"))
	if err := errors.Join(os.MkdirAll(Saved(at("state")), 0o700), os.Mkdir(at("run"), 0o755)); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(Saved(at("state")), stem(at("saved"))+suffix), haproxytest.Certificate(t, "saved.example"))
	log := &strings.Builder{}
	if err := First(t.Context(), at("run"), at("state"), "", config, slog.New(slog.NewTextHandler(log, nil))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(supervise.Published(at("run")), supervise.Loaded(at("run"))); err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(supervise.Loaded(at("run")), supervise.ConfigFile)
	if out, err := exec.Command("haproxy", "-c", "-f", main).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for name, want := range map[string]bool{"damaged": false, "saved": true, "good": true} {
		if strings.Contains(text(t, main), "frontend "+name+"\n") != want {
			t.Errorf("listener %s: want %v", name, want)
		}
	}
	if said := log.String(); !strings.Contains(said, at("damaged")) || !strings.Contains(said, "is not served") {
		t.Errorf("said %q", said)
	}
}

// What a process leaves that is killed while it writes a copy has a private key.
func TestHalfWritten(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	k.certificates.saved, k.certificates.saves = Saved(t.TempDir()), true
	if err := step(t, k, of(web(100, "a"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{k.certificates.dir, k.certificates.saved} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, age := range map[string]time.Duration{"new-1": 2 * time.Minute, "new-2": 0} {
			put(t, filepath.Join(dir, name), "half")
			at := time.Now().Add(-age)
			if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.certificates.sweep()
	for _, dir := range []string{k.certificates.dir, k.certificates.saved} {
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || filepath.Base(left[0]) != "new-2" {
			t.Errorf("left are %v, %v", left, err)
		}
	}
}
