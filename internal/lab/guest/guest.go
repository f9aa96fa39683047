// SPDX-License-Identifier: Apache-2.0

// Package guest is an emulated machine with the Linux kernel's ip_vs: User Mode Linux, which
// runs as a process. Its devices are the other ends of tap devices of a network namespace.
package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"imbang/internal/host"
)

// Program is User Mode Linux (Debian's package user-mode-linux), and modules is where its
// modules are.
const (
	Program = "linux.uml"
	modules = "/usr/lib/uml/modules"
)

// Guest is a machine with the Linux kernel's ip_vs, as a process. It sees the file system
// of this machine, without the right to write, and has /run and /tmp of its own.
type Guest struct {
	dir    string // of commands and what they print; /tmp/host in the guest
	cmd    *exec.Cmd
	input  io.Closer       // the guest halts when it ends, so also when this process does
	write  io.StringWriter // one command a line
	ended  chan struct{}
	output tail
	lines  func(line string)

	mu      sync.Mutex
	last    int
	waiting map[string]chan string // exit status of commands, by name
}

// Spec is a guest to be booted.
type Spec struct {
	// Name is that of its directory, of a host.Run: host.SweepFiles removes those whose
	// process is gone.
	Name string
	// Devices are eth0, eth1 and so on.
	Devices []Device
	// Modules are loaded beside ip_vs.
	Modules []string
	// Preload is the file of the library that build/ipvspeer/xstate.c is compiled to; "" leaves
	// the environment as it is, in which LD_PRELOAD may name it.
	Preload string
	// Lines, if not nil, gets what comes on the console but reports of commands, line by
	// line, as it is read.
	Lines func(line string)
}

// Device is a network device.
type Device struct {
	Tap string           // a tap device of the guest's network namespace
	MAC net.HardwareAddr // nil: any
}

// Boot boots a guest in a network namespace, which has to have its tap devices.
func Boot(ctx context.Context, ns *host.Namespace, spec Spec) (*Guest, error) {
	if err := linkModules(); err != nil {
		return nil, err
	}
	g := &Guest{ended: make(chan struct{}), waiting: map[string]chan string{}, lines: spec.Lines}
	g.dir = filepath.Join(os.TempDir(), spec.Name)
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	if err := g.start(ns, spec); err != nil {
		os.RemoveAll(g.dir)
		return nil, fmt.Errorf("guest: %w", err)
	}
	up, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	status, err := g.await(up, "boot")
	if err == nil && status != "0" {
		err = errors.New("a module of its kernel cannot be loaded")
	}
	if err != nil {
		g.Kill()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("guest does not come up: %w; its console ends with %q (on a CPU with AMX, set LD_PRELOAD to what build/ipvspeer/xstate.c is compiled to)", err, g.output.last())
	}
	return g, nil
}

// linkModules shows the kernel's modules where modprobe looks for them.
func linkModules() error {
	found, err := filepath.Glob(filepath.Join(modules, "*"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%s: %d directories, want that of one kernel (Debian's package user-mode-linux)", modules, len(found))
	}
	link := filepath.Join("/lib/modules", filepath.Base(found[0]))
	if _, err := os.Stat(link); err == nil {
		return nil
	}
	if err := os.MkdirAll("/lib/modules", 0o755); err != nil {
		return err
	}
	if err := os.Symlink(found[0], link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// boot is the guest's first process. A command is a script in a file: its name comes on the
// console, and its exit status is reported there.
const boot = `#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mount -t tmpfs tmp /tmp
stty -echo </dev/console
mkdir /tmp/host; mount -t hostfs none /tmp/host -o %s
status=0
for m in ip_vs %s; do
	modprobe $m || status=1
done
n=0; for d in /sys/class/net/vec*; do ip link set vec$n name eth$n; n=$((n + 1)); done
echo "done boot $status" >/dev/console
while read -r name; do
	( ( . /tmp/host/$name ) >/tmp/host/$name.out 2>&1 </dev/null; echo "done $name $?" >/dev/console ) &
done
halt -f
`

func (g *Guest) start(ns *host.Namespace, spec Spec) error {
	script := filepath.Join(g.dir, "boot")
	if err := os.WriteFile(script, fmt.Appendf(nil, boot, g.dir, strings.Join(spec.Modules, " ")), 0o700); err != nil {
		return err
	}
	args := []string{"mem=192M", "rootfstype=hostfs", "rootflags=/", "ro", "init=" + script, "umid=guest",
		"uml_dir=" + g.dir + "/", "con=null", "con0=fd:0,fd:1", "quiet"}
	for i, d := range spec.Devices {
		arg := fmt.Sprintf("vec%d:transport=tap,ifname=%s,depth=128,gro=0", i, d.Tap)
		if d.MAC != nil {
			arg += ",mac=" + d.MAC.String()
		}
		args = append(args, arg)
	}
	g.cmd = exec.Command(Program, args...)
	g.cmd.Env = append(os.Environ(), "TMPDIR="+os.TempDir())
	if spec.Preload != "" {
		g.cmd.Env = append(g.cmd.Env, "LD_PRELOAD="+spec.Preload)
	}
	// User Mode Linux has a process for each of the guest's: with a namespace for their
	// numbers the kernel ends them all when the first one ends. The session keeps a
	// terminal's Ctrl-C from it.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Setsid: true, Pdeathsig: syscall.SIGKILL}
	in, err := g.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	g.cmd.Stderr = &g.output
	g.input, g.write = in, in.(io.StringWriter)
	g.expect("boot")
	started := make(chan error)
	go func() {
		// The signal comes when the thread that started the process ends: this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ns.Start(g.cmd)
		started <- err
		if err == nil {
			g.listen(out)
			_ = g.cmd.Wait()
			close(g.ended)
		}
	}()
	return <-started
}

// listen reads the console to its end.
func (g *Guest) listen(console io.Reader) {
	for lines := bufio.NewScanner(console); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if at := strings.Index(line, "done "); at >= 0 {
			if f := strings.Fields(line[at:]); len(f) == 3 && g.report(f[1], f[2]) {
				continue
			}
		}
		_, _ = g.output.Write([]byte(line + "\n"))
		if g.lines != nil {
			g.lines(line)
		}
	}
}

func (g *Guest) expect(name string) {
	g.waiting[name] = make(chan string, 1)
}

func (g *Guest) report(name, status string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.waiting[name]
	if ok {
		c <- status
		delete(g.waiting, name)
	}
	return ok
}

func (g *Guest) await(ctx context.Context, name string) (string, error) {
	g.mu.Lock()
	c := g.waiting[name]
	g.mu.Unlock()
	return g.receive(ctx, c)
}

func (g *Guest) receive(ctx context.Context, c <-chan string) (string, error) {
	select {
	case status := <-c:
		return status, nil
	case <-g.ended:
		return "", errors.New("it ended")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Do runs a script of bash in the guest. Several can run at once. output is what it printed,
// errors too.
func (g *Guest) Do(ctx context.Context, script string) (status int, output string, err error) {
	g.mu.Lock()
	g.last++
	name := strconv.Itoa(g.last)
	g.expect(name)
	c := g.waiting[name]
	g.mu.Unlock()
	file := filepath.Join(g.dir, name)
	if err := os.WriteFile(file, []byte(script+"\n"), 0o600); err != nil {
		return 0, "", err
	}
	defer os.Remove(file)
	defer os.Remove(file + ".out")
	g.mu.Lock()
	_, err = g.write.WriteString(name + "\n")
	g.mu.Unlock()
	if err != nil {
		return 0, "", fmt.Errorf("guest: %w; its console ends with %q", err, g.output.last())
	}
	word, err := g.receive(ctx, c)
	if err != nil {
		return 0, "", fmt.Errorf("guest: %s: %w; its console ends with %q", script, err, g.output.last())
	}
	if status, err = strconv.Atoi(word); err != nil {
		return 0, "", fmt.Errorf("guest: exit status %q", word)
	}
	printed, err := os.ReadFile(file + ".out")
	return status, string(printed), err
}

// Must runs a script that has to succeed, and returns what it printed.
func (g *Guest) Must(ctx context.Context, script string) (string, error) {
	status, output, err := g.Do(ctx, script)
	if err == nil && status != 0 {
		err = fmt.Errorf("guest: status %d: %s\n%s", status, script, output)
	}
	return output, err
}

// File is the path of a file on this host that is /tmp/host/NAME in the guest.
func (g *Guest) File(name string) string { return filepath.Join(g.dir, name) }

// PIDs lists the guest's processes on this host, the first one first: all later ones are
// its children.
func (g *Guest) PIDs() []int {
	select {
	case <-g.ended:
		return nil
	default:
	}
	first := g.cmd.Process.Pid
	space := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return link
	}
	own := space(first)
	entries, err := os.ReadDir("/proc")
	if own == "" || own == space(os.Getpid()) || err != nil {
		return nil // it has ended
	}
	pids := []int{first}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != first && space(pid) == own {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill ends the guest at once, as a power failure does. It is idempotent.
func (g *Guest) Kill() {
	g.input.Close()
	_ = g.cmd.Process.Kill()
	<-g.ended
	os.RemoveAll(g.dir)
}

// Close halts the guest, and kills it if it does not end within 5 s.
func (g *Guest) Close() {
	g.input.Close()
	select {
	case <-g.ended:
	case <-time.After(5 * time.Second):
	}
	g.Kill()
}
