// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"imbang/internal/daemon/place"
	"imbang/internal/host"
)

// Files in a rendered configuration.
const (
	ConfigFile = "haproxy.cfg" // that HAProxy is started with
	LogsFile   = "logs.json"   // whose access log is which file, see package accesslog
	// Fallback is a directory in it with the configuration in which HAProxy checks servers
	// itself; there is none if it never does.
	Fallback = "fallback"
)

// Names in the directory.
const (
	rendered = "configurations" // a directory for each
	wanted   = "wanted"
	running  = "running"
	previous = "previous"
)

// kept are the configurations that stay beside those that are used, so that none is removed
// that the supervisor is about to use.
const kept = 8

// RuntimeSocket is where HAProxy's worker accepts commands, if it is rendered so.
func RuntimeSocket(dir string) string { return filepath.Join(dir, "runtime.sock") }

// MasterSocket is that of HAProxy's master.
func MasterSocket(dir string) string { return place.ProxyMaster(dir) }

// ControlSocket is the supervisor's own.
func ControlSocket(dir string) string { return filepath.Join(dir, "control.sock") }

// StateFile has the supervisor's Status.
func StateFile(dir string) string { return filepath.Join(dir, "state.json") }

// LogFile has HAProxy's messages.
func LogFile(dir string) string { return filepath.Join(dir, "haproxy.log") }

// Loaded is the configuration that HAProxy loads, with its files.
func Loaded(dir string) string { return filepath.Join(dir, running) }

// Published is the configuration that HAProxy loads next; "": there is none.
func Published(dir string) string {
	to := target(dir, wanted)
	if to == "" {
		return ""
	}
	return filepath.Join(dir, to)
}

// IsTrying reports whether it is not known yet if HAProxy accepts what it was told to load.
func IsTrying(dir string) bool { return target(dir, previous) != "" }

// AccessLog is the FIFO that HAProxy writes access logs to.
func AccessLog(dir string) string { return filepath.Join(dir, "access.fifo") }

// Root is an empty directory, to be the workers' root.
func Root(dir string) string { return filepath.Join(dir, "empty") }

// NewConfiguration makes a directory for a configuration, which is then written into it.
func NewConfiguration(dir string) (string, error) {
	base := filepath.Join(dir, rendered)
	// HAProxy reads it as root. It may have secrets.
	if err := host.MakeSecret(base); err != nil {
		return "", fmt.Errorf("configuration of HAProxy: %w", err)
	}
	for number := newest(base) + 1; ; number++ {
		path := filepath.Join(base, strconv.Itoa(number))
		err := os.Mkdir(path, 0o700)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("configuration of HAProxy: %w", err)
		}
	}
}

// numbers are those of the configurations that are there.
func numbers(base string) (all []int) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func newest(base string) (n int) {
	for _, one := range numbers(base) {
		n = max(n, one)
	}
	return n
}

// Publish makes a configuration that is complete the one that is wanted: HAProxy loads it with
// the next reload, or when it is started. Older ones are removed.
func Publish(dir, configuration string) error {
	if _, err := os.Stat(filepath.Join(configuration, ConfigFile)); err != nil {
		return fmt.Errorf("configuration of HAProxy: %w", err)
	}
	if err := point(dir, wanted, filepath.Join(rendered, filepath.Base(configuration))); err != nil {
		return err
	}
	used := map[string]bool{}
	for _, link := range []string{wanted, running, previous} {
		used[number(target(dir, link))] = true
	}
	base := filepath.Join(dir, rendered)
	last := newest(base)
	for _, n := range numbers(base) {
		if n <= last-kept && !used[strconv.Itoa(n)] {
			_ = os.RemoveAll(filepath.Join(base, strconv.Itoa(n)))
		}
	}
	return nil
}

// number is the name of a configuration's directory; of its fallback, too.
func number(target string) string {
	return filepath.Base(strings.TrimSuffix(target, "/"+Fallback))
}

// PublishFallback has the configuration that is wanted be the one in which HAProxy checks servers
// itself. False: it is already, or there is none.
func PublishFallback(dir string) (bool, error) {
	to := target(dir, wanted)
	if to == "" || filepath.Base(to) == Fallback {
		return false, nil
	}
	to = filepath.Join(to, Fallback)
	if _, err := os.Stat(filepath.Join(dir, to, ConfigFile)); err != nil {
		return false, nil
	}
	return true, point(dir, wanted, to)
}

// target of a link; "": there is none.
func target(dir, link string) string {
	to, err := os.Readlink(filepath.Join(dir, link))
	if err != nil {
		return ""
	}
	return to
}

// point sets a link, at once. The daemon and the supervisor may do so at the same time.
func point(dir, link, to string) error {
	fresh := filepath.Join(dir, fmt.Sprintf("%s.%d.new", link, os.Getpid()))
	_ = os.Remove(fresh)
	if err := os.Symlink(to, fresh); err != nil {
		return fmt.Errorf("configuration of HAProxy: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(dir, link)); err != nil {
		return fmt.Errorf("configuration of HAProxy: %w", err)
	}
	return nil
}

// links are those of a directory.
type links struct {
	dir string
	// refused is a configuration that HAProxy did not accept: it is not tried again at a
	// restart, only if it is asked for.
	refused string
}

// try sets running to what is wanted.
func (l *links) try(asked bool) error {
	to, is := target(l.dir, wanted), target(l.dir, running)
	switch {
	case is == "" && to == "":
		return errors.New("there is no configuration of HAProxy")
	case to == "" || to == is || to == l.refused && !asked && is != "":
		return nil
	}
	if is != "" && target(l.dir, previous) == "" {
		// Before running is changed: a supervisor that is killed between repeats the try.
		if err := point(l.dir, previous, is); err != nil {
			return err
		}
	}
	return point(l.dir, running, to)
}

// unfinished is true in the middle of a try.
func (l *links) unfinished() bool { return target(l.dir, previous) != "" }

// accept ends a try.
func (l *links) accept() error {
	l.refused = ""
	return remove(l.dir, previous)
}

// refuse goes back. True: there is a configuration that was accepted earlier.
func (l *links) refuse() (bool, error) {
	before, is := target(l.dir, previous), target(l.dir, running)
	if before == "" || before == is {
		return false, remove(l.dir, previous)
	}
	l.refused = is
	if err := point(l.dir, running, before); err != nil {
		return false, err
	}
	return true, remove(l.dir, previous)
}

func remove(dir, link string) error {
	if err := os.Remove(filepath.Join(dir, link)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("configuration of HAProxy: %w", err)
	}
	return nil
}
