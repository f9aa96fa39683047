// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SearchPath is the environment variable PATH of scripts.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// FindProgram finds a program that this process can execute in SearchPath; "": there is none.
func FindProgram(name string) (path string) { return asUser(nil, "").find(name) }

// executor is the user that a program is to run as.
type executor struct {
	uid    uint32
	groups []uint32
	name   string
}

// asUser is the user of a credential; nil: of this process.
func asUser(c *syscall.Credential, name string) executor {
	if c != nil {
		return executor{c.Uid, append([]uint32{c.Gid}, c.Groups...), name}
	}
	e := executor{uid: uint32(os.Geteuid()), groups: []uint32{uint32(os.Getegid())}, name: fmt.Sprintf("of number %d", os.Geteuid())}
	more, _ := os.Getgroups()
	for _, g := range more {
		e.groups = append(e.groups, uint32(g))
	}
	return e
}

// Rights of a file's mode.
const (
	toRead    = 4
	toExecute = 1
)

// may reports whether a user has a right to a file, as far as its mode says: a file with an access
// control list passes.
func (e executor) may(path string, info fs.FileInfo, right uint32) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	mode := s.Mode
	switch {
	case e.uid == 0: // CAP_DAC_OVERRIDE executes what anybody may execute
		return info.IsDir() || right == toRead || mode&0o111 != 0
	case e.uid == s.Uid:
		mode >>= 6
	case slices.Contains(e.groups, s.Gid):
		mode >>= 3
	}
	if mode&right != 0 {
		return true
	}
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// obstacle is why a command cannot be executed, with the remedy, as far as that can be seen; "":
// nothing is found.
func (e executor) obstacle(command []string) string {
	if text := e.unexecutable(command[0]); text != "" {
		return text
	}
	return e.uninterpretable(command)
}

// unexecutable is what execve(2) refuses about a file and the directories that lead to it.
func (e executor) unexecutable(program string) string {
	paths := []string{program}
	if real, err := filepath.EvalSymlinks(program); err == nil && real != program {
		paths = append(paths, real)
	}
	for _, path := range paths {
		for _, dir := range ancestors(path) {
			info, err := os.Stat(dir)
			if text, is := absent(dir, err); is {
				return text
			}
			if !e.may(dir, info, toExecute) {
				return fmt.Sprintf("user %[1]s cannot enter the directory %[2]s: run chmod o+x %[2]s", e.name, dir)
			}
		}
	}
	info, err := os.Stat(program)
	if text, is := absent(program, err); is {
		return text
	}
	switch {
	case info.IsDir():
		return program + " is a directory: name a program"
	case !e.may(program, info, toExecute):
		return fmt.Sprintf("user %[1]s cannot execute %[2]s (mode %04[3]o): run chmod a+rx %[2]s", e.name, program, info.Mode().Perm())
	}
	var mount unix.Statfs_t
	if unix.Statfs(program, &mount) == nil && mount.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Sprintf("%s is on a file system that is mounted with noexec: move it, or mount that with exec", program)
	}
	return ""
}

// unreadable is that the interpreter of a script cannot read it, which shows only in the exit status.
func (e executor) unreadable(program string) string {
	if _, ok := firstLine(program); !ok {
		return ""
	}
	if info, err := os.Stat(program); err == nil && !e.may(program, info, toRead) {
		return fmt.Sprintf("user %[1]s cannot read the script %[2]s (mode %04[3]o): run chmod a+rx %[2]s", e.name, program, info.Mode().Perm())
	}
	return ""
}

// uninterpretable is why the interpreter of a script, or env(1) as a command, cannot run it.
func (e executor) uninterpretable(command []string) string {
	if text := e.unfound(command); text != "" {
		return text
	}
	program := command[0]
	line, ok := firstLine(program)
	if !ok {
		return ""
	}
	if text := e.unreadable(program); text != "" {
		return text
	}
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' }) // as Linux does
	if slices.Contains(words, "-S") {
		words = strings.Fields(line) // as env(1) does
	}
	if len(words) == 0 {
		return ""
	}
	text := e.unexecutable(words[0])
	if text == "" {
		text = e.unfound(words)
	}
	switch {
	case text == "":
		return ""
	case strings.HasSuffix(line, "\r"): // which is a part of the name: interpreters may accept one in an argument
		return fmt.Sprintf("the first line of %s ends with a carriage return: remove these, as with sed -i 's/\\r$//'", program)
	}
	return fmt.Sprintf("the interpreter of %s: %s", program, text)
}

// unfoundStatuses are the exit statuses of env(1) if it cannot run a program.
var unfoundStatuses = []int{126, 127}

// unfound is that env(1) does not find the program of a command. With a search path of its own, or with
// options that are not known here, it may find one elsewhere.
func (e executor) unfound(command []string) string {
	if command[0] != "/usr/bin/env" && command[0] != "/bin/env" {
		return ""
	}
	for _, word := range command[1:] {
		name, _, assigns := strings.Cut(word, "=")
		switch {
		case slices.Contains([]string{"-", "-i", "-S", "--"}, word), assigns && name != "PATH" && !strings.HasPrefix(name, "-"):
			continue
		case assigns, strings.HasPrefix(word, "-"), strings.ContainsAny(word, "/ \t"), e.find(word) != "":
			return ""
		}
		return fmt.Sprintf("there is no %s in %s: install it", word, SearchPath)
	}
	return ""
}

// find finds a program in SearchPath; "": there is none that the user can execute.
func (e executor) find(name string) (path string) {
	for _, dir := range filepath.SplitList(SearchPath) {
		if path := filepath.Join(dir, name); e.unexecutable(path) == "" {
			return path
		}
	}
	return ""
}

// firstLine is that of a script, without #!; false: it is none, or cannot be read. A user may own the
// program and put another file in its place: a device does something when it is opened, and a pipe may
// never end. So the file is found (O_PATH) before it is opened.
func firstLine(program string) (string, bool) {
	const longest = 256 // that Linux reads [bytes]
	found, err := os.OpenFile(program, unix.O_PATH, 0)
	if err != nil {
		return "", false
	}
	defer found.Close()
	if info, err := found.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0) // not for a lease of the user
	if err != nil {
		return "", false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, longest))
	if err != nil {
		return "", false
	}
	text, is := strings.CutPrefix(string(head), "#!")
	text, _, _ = strings.Cut(text, "\n")
	return text, is
}

// absent says that a path does not lead to a file; is is also true if this process cannot tell, and
// the text then "".
func absent(path string, err error) (text string, is bool) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path + " does not exist: install it, or correct the path", true
	case errors.Is(err, syscall.ENOTDIR):
		return path + " is not below a directory: correct the path", true
	case errors.Is(err, syscall.ELOOP):
		return path + " is a symbolic link to itself: correct it", true
	}
	return "", err != nil
}

// ancestors are the directories that lead to a path, from the root.
func ancestors(path string) (list []string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		list = append(list, dir)
		if dir == filepath.Dir(dir) {
			slices.Reverse(list)
			return list
		}
	}
}

// remedies are for errors of execve(2) whose cause is not seen.
var remedies = map[syscall.Errno]string{
	syscall.ENOENT:  "its interpreter or the loader of its libraries does not exist: install that",
	syscall.ENOEXEC: "want a program for this machine, or a script that begins with #!/bin/sh",
	syscall.EPERM:   "run imbang as root, or as the user of the script",
	syscall.ETXTBSY: "another process has it open for writing",
	syscall.E2BIG:   "shorten its arguments",
}

// notStarted is the result of a program that was not started, because of an obstacle if one was seen:
// nothing is known of the server.
func notStarted(command []string, why cause, err error, obstacle string) Result {
	why.local = true
	var number syscall.Errno
	if errors.As(err, &number) {
		why.text = number.Error()
	}
	if obstacle != "" {
		return failed("not started: %s: %s", why, obstacle)
	}
	if text := remedies[number]; text != "" {
		return failed("not started: %s: %s: %s", command[0], why, text)
	}
	return failed("not started: %s: %s", command[0], why)
}
