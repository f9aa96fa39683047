// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/pair"
)

// withFiles is a configuration with a certificate and an authority in a directory.
func withFiles(t *testing.T, dir string) *config.Config {
	t.Helper()
	c, err := config.Parse("x.yaml", fmt.Appendf(nil, `
listeners:
  - {name: shop, bind: ["10.20.0.1:443"], tls: {certificates: [%[1]s/tls/shop.pem], client_ca: %[1]s/ca.pem}, backend: web}
backends:
  - {name: web, servers: [{address: "172.16.0.2:80"}]}
`, dir))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// certificateOf is a text without its key.
func certificateOf(text string) string {
	certificate, _, _ := strings.Cut(text, "-----BEGIN EC PRIVATE")
	return certificate
}

// Files are compared by fingerprints, which say nothing of keys, and what is not usable is said.
func TestPrints(t *testing.T) {
	dir := t.TempDir()
	c, file, ca := withFiles(t, dir), dir+"/tls/shop.pem", dir+"/ca.pem"
	var p prints
	p.look(c)
	if p.of[file] != "missing" || p.of[ca] != "missing" || len(p.of) != 2 {
		t.Fatalf("%v", p.of)
	}
	first, second := haproxytest.Certificate(t, "first.example"), haproxytest.Certificate(t, "second.example")
	put(t, file, first, 0o600)
	put(t, ca, certificateOf(first), 0o644)
	p.look(c)
	was := p.of[file]
	if !strings.HasPrefix(was, "SHA-256 ") || !strings.Contains(was, ", until 20") || p.of[ca] != was {
		t.Errorf("%v", p.of)
	}
	for text, want := range map[string]string{
		certificateOf(first): "not usable", certificateOf(first) + strings.TrimPrefix(second, certificateOf(second)): "not usable",
		"": "not usable", "x": "not usable", second: "", first + certificateOf(second): "",
	} {
		put(t, file, text, 0o600)
		p.look(c)
		if got := p.of[file]; want != "" && got != want || want == "" && (!usable(got) || got == was) {
			t.Errorf("%.40q: %s", text, got)
		}
	}
	put(t, file, first, 0o600)
	p.look(c)
	if d := p.differ(map[string]string{file: was, ca: "missing", "/else": "missing"}); len(d) != 1 || d[0].String() != "file "+ca+": "+was+" here, missing there" {
		t.Errorf("%v", d)
	}
	if d := p.differ(nil); d != nil {
		t.Errorf("a peer that says nothing: %v", d)
	}
}

// What the peer pushes is written with stated modes, and taken back. Only what the configuration names
// is accepted.
func TestPushedCertificates(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	text := haproxytest.Certificate(t, "shop.example")
	put(t, theirs+"/tls/shop.pem", text, 0o600)
	put(t, theirs+"/ca.pem", certificateOf(text), 0o644)
	var p prints
	plan, notes, err := p.offered(withFiles(t, theirs), false)
	if err != nil || len(plan) != 2 || len(notes) > 0 || plan[0].Text != nil || plan[1].Text != nil {
		t.Fatalf("%+v, %v, %v", plan, notes, err)
	}
	sent, _, err := p.offered(withFiles(t, theirs), true)
	if err != nil || len(sent) != 2 || string(sent[1].Text) != text || !sent[1].Key || sent[0].Key {
		t.Fatalf("%+v, %v", sent, err)
	}
	for i := range sent { // both have the same paths
		sent[i].Path = strings.Replace(sent[i].Path, theirs, ours, 1)
	}
	c, file := withFiles(t, ours), ours+"/tls/shop.pem"
	change := func(f func(*pair.Certificate)) []pair.Certificate {
		one := sent[1]
		f(&one)
		return []pair.Certificate{one}
	}
	for what, list := range map[string][]pair.Certificate{
		"does not name it":                      change(func(c *pair.Certificate) { c.Path = ours + "/passwd" }),
		"name it so":                            change(func(c *pair.Certificate) { c.Key = false }),
		"what was sent is not what was planned": change(func(c *pair.Certificate) { c.Text = []byte("root::0:0") }),
		"what was sent is not usable":           change(func(c *pair.Certificate) { c.Text, c.Print = []byte("root::0:0"), printUnusable }),
	} {
		if got, err := wantedFiles(c, list); err == nil || !strings.Contains(err.Error(), what) || got != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	write := func() func() error {
		t.Helper()
		files, err := wantedFiles(c, sent)
		if err != nil {
			t.Fatal(err)
		}
		undo, err := writeCertificates(files)
		if err != nil {
			t.Fatal(err)
		}
		return undo
	}
	is := func(path, want string, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err != nil || err2 != nil || string(got) != want || info.Mode() != mode {
			t.Errorf("%s: %.30q, %v, %v", path, got, info, err)
		}
	}
	undo := write()
	is(file, text, 0o600)
	is(ours+"/ca.pem", certificateOf(text), 0o644)
	if files, err := wantedFiles(c, sent); err != nil || len(files) > 0 {
		t.Errorf("again: %v, %v", files, err)
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after taking it back: %v", err)
	}
	// A file that is there keeps its mode, also behind a link.
	before := haproxytest.Certificate(t, "before.example")
	put(t, ours+"/archive/shop1.pem", before, 0o640)
	if err := os.Symlink("../archive/shop1.pem", file); err != nil {
		t.Fatal(err)
	}
	undo = write()
	is(ours+"/archive/shop1.pem", text, 0o640)
	if err := undo(); err != nil {
		t.Error(err)
	}
	is(ours+"/archive/shop1.pem", before, 0o640)
	// A link that leads to no file stays one.
	if err := os.Remove(ours + "/archive/shop1.pem"); err != nil {
		t.Fatal(err)
	}
	undo = write()
	is(ours+"/archive/shop1.pem", text, 0o600)
	if err := undo(); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(file); err != nil || to != "../archive/shop1.pem" {
		t.Errorf("%s, %v", to, err)
	}
	// One of two fails: the other one is taken back.
	if err := os.Mkdir(ours+"/archive/shop1.pem", 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := wantedFiles(c, sent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeCertificates(files); err == nil || !strings.Contains(err.Error(), "write "+file) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(ours + "/ca.pem"); !os.IsNotExist(err) {
		t.Errorf("after a failure: %v", err)
	}
}

// An account that owns the place of a certificate cannot have the peer be sent, or overwrite, a file of
// root's.
func TestCertificateOfAnotherAccount(t *testing.T) {
	dir := t.TempDir()
	c, file := withFiles(t, dir), dir+"/tls/shop.pem"
	text := haproxytest.Certificate(t, "secret.example")
	put(t, dir+"/secret.pem", text, 0o600)
	put(t, dir+"/ca.pem", certificateOf(text), 0o644)
	put(t, dir+"/tls/x", "", 0o600)
	if err := errors.Join(os.Symlink("../secret.pem", file), os.Lchown(file, 12345, 12345)); err != nil {
		t.Skipf("needs root: %v", err)
	}
	var p prints
	sent, notes, err := p.offered(c, true)
	if err != nil || len(sent) != 1 || sent[0].Key || len(notes) != 1 || !strings.Contains(notes[0], file+" is not usable") {
		t.Errorf("%d files, %v, %v", len(sent), notes, err)
	}
	next := haproxytest.Certificate(t, "next.example")
	if _, err := writeCertificates([]pair.Certificate{{Path: file, Text: []byte(next), Key: true}}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v", err)
	}
	if is, err := os.ReadFile(dir + "/secret.pem"); err != nil || string(is) != text {
		t.Errorf("%.30q, %v", is, err)
	}
	// As the message says.
	if err := os.Lchown(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	if sent, notes, err := p.offered(c, true); err != nil || len(sent) != 2 {
		t.Errorf("a link of root's: %d files, %v, %v", len(sent), notes, err)
	}
}
