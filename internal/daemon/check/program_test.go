// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scripts is a directory that the user nobody may enter.
func scripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	return dir
}

// put writes a program.
func put(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// ample is time for a script on a busy machine.
const ample = 30 * time.Second

const succeeds = "#!/bin/sh\nexit 0\n"

// A script that this machine cannot run says nothing of the server, and the result has the remedy.
func TestScriptCannotRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to run scripts as another user")
	}
	dir := scripts(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("closed/s"), succeeds, 0o755)
	if err := os.Chmod(at("closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("gone"), at("link")); err != nil {
		t.Fatal(err)
	}
	open := put(t, at("open"), succeeds, 0o755)
	writer, err := os.OpenFile(open, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, c := range []struct {
		name, program, detail string
		seen                  bool // by imbang check, too
	}{
		{"mode 644", put(t, at("s644"), succeeds, 0o644), "not started: permission denied: user nobody cannot execute " + at("s644") + " (mode 0644): run chmod a+rx " + at("s644"), true},
		{"mode 700", put(t, at("s700"), succeeds, 0o700), "not started: permission denied: user nobody cannot execute " + at("s700") + " (mode 0700): run chmod a+rx " + at("s700"), true},
		{"mode 711", put(t, at("s711"), succeeds, 0o711), "exit status 2: user nobody cannot read the script " + at("s711") + " (mode 0711): run chmod a+rx " + at("s711"), true},
		{"missing", at("gone"), "not started: no such file or directory: " + at("gone") + " does not exist: install it, or correct the path", true},
		{"dangling link", at("link"), "not started: no such file or directory: " + at("link") + " does not exist", true},
		{"below a file", put(t, at("file"), "", 0o755) + "/s", "not started: not a directory: " + at("file") + "/s is not below a directory", true},
		{"directory", dir, "not started: permission denied: " + dir + " is a directory: name a program", true},
		{"closed directory", at("closed/s"), "not started: permission denied: user nobody cannot enter the directory " + at("closed") + ": run chmod o+x " + at("closed"), true},
		{"interpreter is missing", put(t, at("lua"), "#!/none/lua -x\n", 0o755), "not started: no such file or directory: the interpreter of " + at("lua") + ": /none does not exist", true},
		{"env finds nothing", put(t, at("env"), "#!/usr/bin/env -S none-such -x\n", 0o755), "exit status 127: the interpreter of " + at("env") + ": there is no none-such in /usr/local/sbin:", true},
		{"carriage return", put(t, at("cr"), "#!/bin/sh\r\nexit 0\r\n", 0o755), "not started: no such file or directory: the first line of " + at("cr") + " ends with a carriage return", true},
		{"carriage return behind env", put(t, at("cr-env"), "#!/usr/bin/env sh\r\nexit 0\r\n", 0o755), "exit status 127: the first line of " + at("cr-env") + " ends with a carriage return", true},
		{"no format", put(t, at("text"), "exit 0\n", 0o755), "not started: " + at("text") + ": exec format error: want a program for this machine, or a script", false},
		{"open for writing", open, "not started: " + open + ": text file busy: another process has it open for writing", false},
	} {
		for _, dynamic := range []bool{false, true} {
			spec := &Script{Command: []string{c.program}, User: "nobody", Dynamic: dynamic}
			r := runWithin(t, ample, spec, "127.0.0.1:80")
			expect(t, c.name, r, false, c.detail)
			if !r.Inconclusive || r.HasShare {
				t.Errorf("%s: %+v", c.name, r)
			}
			if text := spec.Obstacle(); (text != "") != c.seen || !strings.Contains(r.Detail, text) {
				t.Errorf("%s: seen %q", c.name, text)
			}
		}
	}
	for _, command := range [][]string{{"/usr/bin/env", "none-such", "-x"}, {"/usr/bin/env", "-i", "A=b", "none-such"}} {
		spec := &Script{Command: command}
		r := runWithin(t, ample, spec, "127.0.0.1:80")
		expect(t, command[0], r, false, "exit status 127: there is no none-such in /usr/local/sbin:")
		if !r.Inconclusive || !strings.Contains(spec.Obstacle(), "there is no none-such in ") {
			t.Errorf("%+v, seen %q", r, spec.Obstacle())
		}
	}
	long := runWithin(t, ample, &Script{Command: []string{put(t, at("long"), succeeds, 0o755), strings.Repeat("x", 1<<18)}}, "127.0.0.1:80")
	if !long.Inconclusive || long.Detail != "not started: "+at("long")+": argument list too long: shorten its arguments" {
		t.Errorf("%+v", long)
	}
	none := &Script{Command: []string{at("long")}, User: "no-such-user"}
	if want := "there is no user no-such-user: create it, or correct the user of the script"; none.Obstacle() != want {
		t.Errorf("%q", none.Obstacle())
	}
}

// What a script itself reports counts.
func TestScriptFails(t *testing.T) {
	dir := scripts(t)
	for name, text := range map[string]string{
		"exit status 1":                       "#!/bin/sh\nexit 1\n",
		"exit status 127: none-such not foun": "#!/bin/sh\necho none-such not found; exit 127\n",
		"exit status 4":                       "#!/usr/bin/env sh\nexit 4\n",
		"signal: segmentation fault":          "#!/bin/sh\nkill -SEGV $$\n",
		"signal: killed":                      "#!/bin/sh\nkill -9 $$\n",
	} {
		spec := &Script{Command: []string{put(t, filepath.Join(dir, "s"), text, 0o755)}}
		r := runWithin(t, ample, spec, "127.0.0.1:80")
		expect(t, name, r, false, name)
		if r.Inconclusive || spec.Obstacle() != "" {
			t.Errorf("%s: %+v, %q", name, r, spec.Obstacle())
		}
	}
}

// Programs that end a check which takes too long by SIGKILL get it too, and env(1) finds programs in a
// search path of its own: the server has failed.
func TestScriptOfPrograms(t *testing.T) {
	dir := scripts(t)
	path := "PATH=" + dir + ":/usr/bin:/bin"
	put(t, filepath.Join(dir, "own_check"), "#!/bin/sh\nexit 2\n", 0o755)
	for _, c := range []struct {
		command []string
		detail  string
	}{
		{[]string{"/usr/bin/timeout", "-s", "KILL", "0.1", "sleep", "60"}, "signal: killed"},
		{[]string{"/usr/bin/timeout", "-s", "WINCH", "-k", "0.1", "0.1", "sleep", "60"}, "signal: killed"}, // which ignores the first signal
		{[]string{"/usr/bin/env", path, "own_check"}, "exit status 2"},
		{[]string{put(t, filepath.Join(dir, "s"), "#!/usr/bin/env -S "+path+" own_check\n", 0o755)}, "exit status 2"},
		{[]string{"/usr/bin/env", "-u", "LANG", "false"}, "exit status 1"},
		{[]string{"/usr/bin/env", "--unset=LANG", "false"}, "exit status 1"},
		{[]string{"/usr/bin/env", "-S", "sh -c false"}, "exit status 1"},
		{[]string{"/usr/bin/env", "-i", "--", "A=b", "false"}, "exit status 1"},
		{[]string{put(t, filepath.Join(dir, "env"), "#!/bin/sh\nexit 1\n", 0o755), "db1"}, "exit status 1"}, // not env(1)
		{[]string{put(t, filepath.Join(dir, "127/env"), "#!/bin/sh\nexit 127\n", 0o755), "db1"}, "exit status 127"},
		{[]string{put(t, filepath.Join(dir, "perl"), "#!/usr/bin/perl -w\r\nexit 2;\r\n", 0o755)}, "exit status 2"}, // Perl accepts it
		{[]string{put(t, filepath.Join(dir, "split"), "#!/usr/bin/env -S perl -w\r\nexit 2;\r\n", 0o755)}, "exit status 2"},
		{[]string{put(t, filepath.Join(dir, "split2"), "#!/usr/bin/env -S perl\r\nexit 2;\r\n", 0o755)}, "exit status 2"},
	} {
		spec := &Script{Command: c.command}
		r := runWithin(t, ample, spec, "127.0.0.1:80")
		if r.OK || r.Inconclusive || r.Detail != c.detail || spec.Obstacle() != "" {
			t.Errorf("%q: %+v, %q", c.command, r, spec.Obstacle())
		}
	}
}

// A script that the kernel kills for lack of memory says nothing of the server.
func TestScriptNoMemory(t *testing.T) {
	group, limit := "/sys/fs/cgroup/imbang-check-test", "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		group, limit = "/sys/fs/cgroup/memory/imbang-check-test", "memory.limit_in_bytes"
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("requires control groups: ", err)
	}
	defer func() {
		for began := time.Now(); os.Remove(group) != nil && time.Since(began) < ample; { // while the process ends
			time.Sleep(time.Millisecond)
		}
	}()
	if err := os.WriteFile(filepath.Join(group, limit), []byte("20000000"), 0o600); err != nil {
		t.Skip("requires the controller of memory: ", err)
	}
	_ = os.WriteFile(filepath.Join(group, "memory.swap.max"), []byte("0"), 0o600)
	_ = os.WriteFile(filepath.Join(group, "memory.memsw.limit_in_bytes"), []byte("20000000"), 0o600)
	program := put(t, filepath.Join(scripts(t), "s"), "#!/bin/sh\necho $$ >"+group+"/cgroup.procs && exec tail /dev/zero\n", 0o755)
	r := runWithin(t, ample, &Script{Command: []string{program}}, "127.0.0.1:80")
	if expect(t, "no memory", r, false, "signal: killed, for lack of memory"); !r.Inconclusive {
		t.Errorf("%+v", r)
	}
}

// The user of a script may put a pipe in its place, which never ends, or a device: these are not opened.
func TestScriptThatIsNoFile(t *testing.T) {
	dir := scripts(t)
	pipe, path := filepath.Join(dir, "pipe"), filepath.Join(dir, "s")
	if err := unix.Mkfifo(pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	put(t, path, "#!/bin/sh\nln -sf "+pipe+" "+path+"\nexit 1\n", 0o755)
	done := make(chan Result, 1)
	go func() { done <- runWithin(t, ample, &Script{Command: []string{path}}, "127.0.0.1:80") }()
	select {
	case r := <-done:
		if r.OK || r.Inconclusive || r.Detail != "exit status 1" {
			t.Errorf("%+v", r)
		}
	case <-time.After(2 * ample):
		t.Error("the check does not end")
	}
}

// A user without room for another process is a shortage of this machine.
func TestScriptNoProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to run scripts as another user")
	}
	program := put(t, filepath.Join(scripts(t), "s"), succeeds, 0o755)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	credential, err := credentialOf(nobody)
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	r := runWithin(t, ample, &Script{Command: []string{program}, User: "nobody"}, "127.0.0.1:80")
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &before); err != nil {
		t.Fatal(err)
	}
	expect(t, "no processes", r, false, "not started: "+program+": resource temporarily unavailable")
	if !r.Inconclusive {
		t.Errorf("%+v", r)
	}
}

// A file system without the right to execute is seen.
func TestScriptNoExec(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to mount a file system")
	}
	dir := scripts(t)
	program := filepath.Join(dir, "s")
	made, err := (&Script{Command: []string{program}}).Checker()
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with its mounts
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("imbang", dir, "tmpfs", unix.MS_NOEXEC, "mode=755")
		}
		if err == nil {
			err = os.WriteFile(program, []byte(succeeds), 0o700)
		}
		if err == nil {
			r = made.Check(t.Context(), Target{})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect(t, "noexec", r, false, "not started: permission denied: "+program+" is on a file system that is mounted with noexec")
	if !r.Inconclusive {
		t.Errorf("%+v", r)
	}
}

// While a script is replaced, its servers stay as they are.
func TestScriptReplaced(t *testing.T) {
	path := put(t, filepath.Join(scripts(t), "s"), succeeds, 0o755)
	timing := Timing{Rise: 1, Fall: 1}
	state := State{Verdict: Up}
	for _, step := range []func(){
		func() {},
		func() { _ = os.Remove(path) },
		func() { put(t, path, "", 0o600) },
		func() { put(t, path, succeeds, 0o600) },
		func() { put(t, path, succeeds, 0o755) },
	} {
		step()
		state, _ = timing.Next(state, runWithin(t, ample, &Script{Command: []string{path}}, "127.0.0.1:80"), state.At)
		if state.Verdict != Up {
			t.Errorf("%+v", state.Last)
		}
	}
	if !state.Last.OK {
		t.Errorf("%+v", state.Last)
	}
	put(t, path, "#!/bin/sh\nexit 1\n", 0o755)
	if state, _ = timing.Next(state, runWithin(t, ample, &Script{Command: []string{path}}, "127.0.0.1:80"), state.At); state.Verdict != Down {
		t.Errorf("%+v", state.Last)
	}
}

func TestFindProgram(t *testing.T) {
	if path := FindProgram("sh"); !filepath.IsAbs(path) || filepath.Base(path) != "sh" {
		t.Errorf("sh: %q", path)
	}
	for _, name := range []string{"no-such-program", "", "."} {
		if path := FindProgram(name); path != "" {
			t.Errorf("%q: %s", name, path)
		}
	}
}

// A program that is installed while it is to be started is not said to lack an interpreter.
func TestProgramInstalledMeanwhile(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "watch")
	for i := range 300 {
		_ = os.Remove(path)
		installed := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			installed <- os.Symlink(program, path)
		}()
		r := runWithin(t, ample, &Script{Command: []string{path}}, "127.0.0.1:80")
		if err := <-installed; err != nil {
			t.Fatal(err)
		}
		if !r.OK && !strings.HasSuffix(r.Detail, path+" does not exist: install it, or correct the path") {
			t.Fatalf("after %d: %s", i, r.Detail)
		}
	}
}
