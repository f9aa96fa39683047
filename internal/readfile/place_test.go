// SPDX-License-Identifier: Apache-2.0

package readfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const other = 12345 // an account

func as(t *testing.T, path string) {
	t.Helper()
	if err := os.Lchown(path, other, other); err != nil {
		t.Skipf("needs root: %v", err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// root follows links of its own, and those of another account only to what that may have itself.
func TestPlace(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(at("account"), 0o755), os.Mkdir(at("secret"), 0o700))
	must(t, os.WriteFile(at("account/own"), []byte("own"), 0o600), os.WriteFile(at("root"), []byte("root"), 0o600),
		os.WriteFile(at("public"), []byte("public"), 0o644), os.WriteFile(at("secret/open"), []byte("open"), 0o644))
	for name, to := range map[string]string{"to-own": "own", "to-root": "../root", "to-public": "../public", "to-secret": at("secret/open"), "to-dir": "..", "loop": "loop", "to-none": "none", "to-roots-none": "../none"} {
		must(t, os.Symlink(to, at("account/"+name)))
		as(t, at("account/"+name))
	}
	must(t, os.Symlink("account/own", at("link")), os.Symlink("../root", at("account/by-root")), os.Symlink("new", at("dangles")))
	as(t, at("account"))
	as(t, at("account/own"))
	type expect struct{ read, write string } // "": may
	const no = "give the link to root"
	for name, want := range map[string]expect{
		"root": {}, "account/own": {}, "account/to-own": {}, "link": {}, "account/by-root": {},
		"account/to-root": {no, no}, "account/to-public": {"", no}, "account/to-secret": {no, no}, "account/to-dir/root": {no, no},
		"account/loop": {"too many levels", "too many levels"}, "made/x": {"no such file", ""}, "dangles": {"no such file", ""},
		"account/to-none": {"no such file", ""}, "account/to-roots-none": {"no such file", no}, "account": {"is a directory", "x"},
	} {
		is := func(what, want string, err error) {
			t.Helper()
			if want == "x" && err != nil {
				return
			}
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), at(name)+": ")) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
		text, info, err := Owned(at(name), 100)
		is("read", want.read, err)
		p, err := Find(at(name), true)
		if err == nil {
			err = p.Write(text, func(f *os.File) error {
				if info == nil {
					return nil
				}
				s, _ := info.Sys().(*syscall.Stat_t)
				return errors.Join(f.Chown(int(s.Uid), int(s.Gid)), f.Chmod(info.Mode()))
			})
			p.Close()
		}
		is("write", want.write, err)
	}
	for name, what := range map[string]string{"new": "", "link": "l", "dangles": "l", "account/to-none": "l", "account/none": ""} {
		info, err := os.Lstat(at(name))
		if err != nil || (info.Mode()&fs.ModeSymlink != 0) != (what == "l") {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if all, _ := filepath.Glob(at("*/.imbang-*")); len(all) > 0 {
		t.Errorf("left: %v", all)
	}
	if open, err := os.ReadDir("/proc/self/fd"); err != nil || len(open) > 20 {
		t.Errorf("%d open files, %v", len(open), err)
	}
}

// A name that another account has taken for the temporary file gets neither text nor owner.
func TestPlaceTakenName(t *testing.T) {
	dir := t.TempDir()
	victim, file := filepath.Join(dir, "victim"), filepath.Join(dir, "d", "file")
	must(t, os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(victim, []byte("victim"), 0o600), os.WriteFile(file, []byte("x"), 0o600), os.Symlink(victim, file+".new"))
	as(t, filepath.Dir(file))
	p, err := Find(file, false)
	must(t, err)
	defer p.Close()
	must(t, p.Write([]byte("second"), func(f *os.File) error { return errors.Join(f.Chown(other, other), f.Chmod(0o644)) }))
	text, err := os.ReadFile(victim)
	info, err2 := os.Stat(victim)
	if err != nil || err2 != nil || string(text) != "victim" || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%q, %v, %v, %v", text, info.Mode(), err, err2)
	}
}
