// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/supervise"
)

// file is one of a rendered configuration, by its name in the directory.
type file struct{ name, text string }

func (k *Keeper) options(draining bool) haproxy.Options { return options(k.Dir, k.version, draining) }

func options(dir string, v haproxy.Version, draining bool) haproxy.Options {
	return haproxy.Options{
		Version: v, Directory: supervise.Loaded(dir), Socket: supervise.RuntimeSocket(dir), Chroot: supervise.Root(dir), Draining: draining,
		Temporary: supervise.Checks(dir),
	}
}

// render renders a configuration, and if there is one that of HAProxy's own checks.
func (k *Keeper) render(c *l7.Config, w *Wanted) ([]file, error) {
	files, err := render(c, w.States, k.options(w.Draining))
	if err != nil {
		return nil, err
	}
	side, err := sideFile(w, k.version.Text)
	return append(files, side), err
}

func render(c *l7.Config, states l7.States, o haproxy.Options) (files []file, err error) {
	for _, fallback := range []bool{false, true} {
		if fallback && c.Engine.Fallback == 0 {
			break
		}
		o.Fallback = fallback
		r, err := haproxy.Render(c, states, o)
		if err != nil {
			return nil, err
		}
		for _, f := range r.Files {
			name := f.Name
			if fallback {
				name = filepath.Join(supervise.Fallback, name)
			}
			files = append(files, file{name, f.Text})
		}
	}
	return files, nil
}

// isPublished reports whether these files are what HAProxy loads next.
func isPublished(dir string, files []file) bool {
	at := supervise.Published(dir)
	if at == "" {
		return false
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(at, f.name))
		if err != nil || string(text) != f.text {
			return false
		}
	}
	return true
}

// publish makes files what HAProxy loads next.
func publish(dir string, files []file) error {
	at, err := supervise.NewConfiguration(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(at, f.name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(f.text), 0o600)
		}
		if err != nil {
			return errors.Join(err, os.RemoveAll(at))
		}
	}
	return supervise.Publish(dir, at)
}

// Saved is the directory of the copies of files that survive a reboot, in a state directory.
func Saved(state string) string { return filepath.Join(state, "certificates") }

// First publishes a configuration whose servers have no states yet, for a HAProxy that is started
// before the daemon.
func First(ctx context.Context, dir, state, program string, c *l7.Config, log *slog.Logger) error {
	if program == "" {
		program = "haproxy"
	}
	v, err := haproxy.Detect(ctx, program)
	if err != nil {
		return err
	}
	certificates := newCertificates(dir)
	certificates.saved = Saved(state)
	certificates.look(c)
	for path, problem := range certificates.problems() {
		log.Error("a file of the configuration cannot be used", "file", path, "problem", problem)
	}
	copied, err := certificates.use(c)
	if err != nil {
		return err
	}
	states := l7.States{}
	for i := range c.Backends {
		for _, s := range c.Backends[i].Servers {
			states[l7.ServerID{Backend: c.Backends[i].Name, Server: s.Name}] = l7.State{Weight: s.Weight}
		}
	}
	files, err := render(copied, states, options(dir, v, false))
	if err != nil {
		return err
	}
	side, err := sideFile(&Wanted{Config: c, States: states}, v.Text)
	if err != nil {
		return err
	}
	return publish(dir, append(files, side))
}
