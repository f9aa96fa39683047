// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/command"
)

// imports runs imbang import with a file of a name and text.
func imports(t *testing.T, name, text string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	status = command.Execute(t.Context(), newRootCommand(), append([]string{"import", file}, args...), strings.NewReader(""), &out, &errs)
	return status, out.String(), strings.ReplaceAll(errs.String(), filepath.Dir(file)+"/", "")
}

func TestImportText(t *testing.T) {
	var unknown strings.Builder // lines that are all listed
	for i := range 16000 {
		fmt.Fprintf(&unknown, "unknown %d%s\n", i, strings.Repeat("x", 200))
	}
	conditional := "virtual_server 10.0.0.1 80 {\nprotocol TCP\n@a lb_kind DR\n@b lb_kind TUN\nreal_server 10.0.1.1 80 {\n}\n}\n"
	refused := "virtual_server 10.0.0.1 80 {\nprotocol TCP\npersistence_engine sip\nreal_server 10.0.1.1 80 {\n}\n}\n"
	for _, one := range []struct {
		about, name, text string
		args              []string
		status            int
		stdout, stderr    string
	}{
		{"one machine's lines", "k.conf", conditional, []string{"--config-id", "b"}, 0, "forward: tunnel", ""},
		{"no machine's lines", "k.conf", conditional, nil, 1, "forward: masquerading", "k.conf:3: @a lb_kind DR: holds for some machines only"},
		{"comments alone", "ldirectord.cf", "# nothing\n", nil, 0, "services: []", "ldirectord.cf has no virtual service\n"},
		{"what imbang check refuses", "k.conf", refused, nil, 1, "", "k.conf:1: services[0].engine: imbang check refuses what it became: "},
		{"includes alone", "k.conf", "include none.conf\n", nil, 1, "services: []", "k.conf:1: include none.conf: no such file\n"},
		{"VRRP alone", "k.conf", "vrrp_instance a {\nversion 3\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.1\n}\n}\n", []string{"--output", "json"}, 0, "\"groups\": 1,", ""},
		{"script", "dr.sh", "#!/bin/sh\nvip=10.0.0.1\n/sbin/ipvsadm -A -t $vip:80 -s rr\n", nil, 3, "", "dr.sh is a script: import what ipvsadm -Sn prints after it has run, on a machine with ip_vs\n"},
		{"no configuration", "x.txt", "hello\n", nil, 3, "", "x.txt has neither virtual_server nor vrrp_instance blocks, nor virtual= lines, nor lines of ipvsadm -Sn: say what it is with --format\n"},
		{"a file that is too large", "k.conf", "virtual_server 10.0.0.1 80 {\n" + unknown.String() + "}\n", nil, 1, "", "k.conf: the configuration: imbang check refuses what it became: larger than 4096 KiB"},
		{"config-id of another format", "l.cf", "virtual=10.0.0.1:80\n", []string{"--config-id", "b"}, 2, "", "--config-id is for keepalived.conf only"},
	} {
		t.Run(one.about, func(t *testing.T) {
			status, stdout, stderr := imports(t, one.name, one.text, one.args...)
			if status != one.status || !strings.Contains(stdout, one.stdout) || !strings.Contains(stderr, one.stderr) {
				t.Errorf("status %d, want %d\n%s\n%s", status, one.status, stdout, stderr)
			}
		})
	}
}

// Files without an end are refused, and a reader without one ends with the context.
func TestImportEnds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "k.conf")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fifo, "/dev/zero", t.TempDir()} {
		var errs bytes.Buffer
		status := command.Execute(t.Context(), newRootCommand(), []string{"import", name}, strings.NewReader(""), io.Discard, &errs)
		if status != command.StatusFailed || !strings.Contains(errs.String(), "is not a regular file") {
			t.Errorf("%s: status %d, %s", name, status, errs.String())
		}
	}
	in, silent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status := command.Execute(ctx, newRootCommand(), []string{"import", "-"}, in, io.Discard, io.Discard); status != command.StatusFailed {
		t.Errorf("status %d", status)
	}
}

// A file is replaced as a whole: through its link, with its mode and owner, and what it had is
// kept under a name that no other file has.
func TestWriteImported(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "link.yaml")
	if err := errors.Join(os.WriteFile(file, []byte("by hand"), 0o600), os.Symlink("imbang.yaml", link)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeImported(link, []byte("none"), 0o644, false); err == nil || !strings.Contains(err.Error(), "exists: name another file, or replace it with --force") {
		t.Error(err)
	}
	for _, text := range []string{"first", "second", "third"} {
		if err := writeImported(link, []byte(text), 0o644, true); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"imbang.yaml": "third", "imbang.yaml.bak": "by hand", "imbang.yaml.bak.2": "first", "imbang.yaml.bak.3": "second"}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		after, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		is, was := after.Sys().(*syscall.Stat_t), before.Sys().(*syscall.Stat_t)
		if after.Mode() != 0o600 || is.Uid != was.Uid || is.Gid != was.Gid {
			t.Errorf("%s: %s of %d:%d", name, after.Mode(), is.Uid, is.Gid)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != len(want)+1 {
		t.Errorf("%v, %v", all, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeImported(fifo, []byte("x"), 0o644, true); err == nil || err.Error() != fifo+" is not a regular file" {
		t.Error(err)
	}
}

// A new file is as private as what it was made of.
func TestWriteImportedPrivate(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "keepalived.conf"), filepath.Join(dir, "imbang.yaml")
	for _, one := range []struct{ from, to os.FileMode }{{0o600, 0o600}, {0o640, 0o640}, {0o755, 0o644}, {0o400, 0o600}} {
		err := errors.Join(os.WriteFile(from, []byte("virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\n}\n}\n"), 0o600), os.Chmod(from, one.from))
		if err != nil {
			t.Fatal(err)
		}
		c := newImportCommand()
		c.SetArgs([]string{from, "-f", to})
		c.SetOut(io.Discard)
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(to)
		if err != nil || info.Mode() != one.to {
			t.Errorf("%s: %v, %v", one.from, info.Mode(), err)
		}
		if err := errors.Join(os.Remove(to), os.Remove(from)); err != nil {
			t.Fatal(err)
		}
	}
}

// If a disk is full, the file stays as it was, and nothing is beside it.
func TestWriteImportedOnFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to mount a file system")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "imbang.yaml")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with its mounts
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("imbang", dir, "tmpfs", 0, "size=16k"))
		if err == nil {
			err = os.WriteFile(file, []byte("by hand"), 0o600)
		}
		if err == nil {
			for _, name := range []string{file, filepath.Join(dir, "new.yaml")} {
				if err := writeImported(name, make([]byte, 64<<10), 0o644, true); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != "by hand" {
				t.Errorf("%.20q, %v", text, err)
			}
			if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
				t.Errorf("%v, %v", all, err)
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
