// SPDX-License-Identifier: Apache-2.0

package readfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Place is where a path leads: a directory, which is held open, and a name in it that is not a
// symbolic link.
//
// Who owns a directory decides what its names lead to. root, which follows them, would give away
// what that account may not read, or overwrite what it may not write. Therefore a symbolic link of
// an account other than root leads to that account's own files and, to be read, to those that all
// accounts can read.
type Place struct {
	path  string
	name  string
	dirs  []*os.Root // from / to the directory
	links []link     // of accounts other than root
}

type link struct {
	path  string
	owner uint32
}

var errChanges = errors.New("changes while it is read")

// maxLinks is that of Linux.
const maxLinks = 40

// Find follows a path. The file itself may be missing; missing directories are made if make is set,
// with mode 0755.
func Find(path string, make bool) (*Place, error) {
	p := &Place{path: path}
	if err := p.follow(make); err != nil {
		p.Close()
		return nil, named(path, err)
	}
	return p, nil
}

// named is an error that begins with the path.
func named(path string, err error) error {
	var at *fs.PathError
	var of *os.LinkError
	switch {
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &of):
		err = of.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Name is that of the file in its directory.
func (p *Place) Name() string { return p.name }

func (p *Place) dir() *os.Root { return p.dirs[len(p.dirs)-1] }

func (p *Place) up(to int) {
	for len(p.dirs) > to {
		_ = p.dir().Close()
		p.dirs = p.dirs[:len(p.dirs)-1]
	}
}

// Close ends the use of the directory.
func (p *Place) Close() { p.up(0) }

func (p *Place) follow(make bool) error {
	path, err := filepath.Abs(p.path)
	if err != nil {
		return err
	}
	top, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	p.dirs = append(p.dirs, top)
	rest, links := strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			p.up(max(1, len(p.dirs)-1))
			continue
		}
		info, err := p.dir().Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(rest) > 0 && make && len(p.links) == 0:
			if err := p.dir().Mkdir(name, 0o755); err != nil {
				return err
			}
			rest = slices.Insert(rest, 0, name)
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return syscall.ELOOP
			}
			to, err := p.dir().Readlink(name)
			if err != nil {
				return err
			}
			if by := owner(info); by != 0 {
				p.links = append(p.links, link{filepath.Join(p.dir().Name(), name), by})
			}
			if filepath.IsAbs(to) {
				p.up(1)
			}
			rest = slices.Concat(strings.Split(to, "/"), rest)
		case len(rest) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)):
			p.name = name
			return nil
		case err != nil:
			return err
		default:
			if err := p.enter(name, info); err != nil {
				return err
			}
		}
	}
	return syscall.EISDIR
}

// enter a directory, unless it has become another one.
func (p *Place) enter(name string, was fs.FileInfo) error {
	next, err := p.dir().OpenRoot(name)
	if err != nil {
		return err
	}
	p.dirs = append(p.dirs, next)
	is, err := next.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(was, is) {
		return errChanges
	}
	return nil
}

func owner(info fs.FileInfo) uint32 {
	if s, is := info.Sys().(*syscall.Stat_t); is {
		return s.Uid
	}
	return 0
}

// allowed is the rule of Place for a file, or for the directory of one that is missing.
func (p *Place) allowed(info fs.FileInfo, read bool) error {
	for _, l := range p.links {
		if owner(info) == l.owner || read && p.public(info) {
			continue
		}
		return fmt.Errorf("is not followed: the symbolic link is of the account %d and leads to a file that is not: give the link to root (chown -h root %s), or name the file itself", l.owner, l.path)
	}
	return nil
}

// public reports whether all accounts can read a file.
func (p *Place) public(info fs.FileInfo) bool {
	if info.Mode().Perm()&0o004 == 0 {
		return false
	}
	for _, dir := range p.dirs {
		if info, err := dir.Stat("."); err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
	}
	return true
}

// Read is Regular at a place.
func (p *Place) Read(limit int64) ([]byte, fs.FileInfo, error) {
	text, info, err := p.read(limit)
	if err != nil {
		return nil, nil, named(p.path, err)
	}
	return text, info, nil
}

func (p *Place) read(limit int64) ([]byte, fs.FileInfo, error) {
	was, err := p.dir().Lstat(p.name)
	if err != nil {
		return nil, nil, err
	}
	f, err := p.dir().OpenFile(p.name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return readOpen(f, limit, func(info fs.FileInfo) error {
		if !os.SameFile(was, info) {
			return errChanges // the name may have become a link
		}
		return p.allowed(info, true)
	})
}

// Write writes a file whole or not at all. The new file is root's and has mode 0600 until prepare,
// which is called before it has a text.
func (p *Place) Write(text []byte, prepare func(*os.File) error) error {
	if err := p.write(text, prepare); err != nil {
		return named(p.path, err)
	}
	return nil
}

func (p *Place) write(text []byte, prepare func(*os.File) error) error {
	info, err := p.dir().Lstat(p.name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = p.dir().Stat(".")
	}
	if err == nil {
		err = p.allowed(info, false)
	}
	if err != nil {
		return err
	}
	// Not a name that was there: it may be a link, or a file that another account has open.
	temporary := ".imbang-" + rand.Text()
	f, err := p.dir().OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = prepare(f); err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = p.dir().Rename(temporary, p.name)
	}
	if err != nil {
		_ = p.dir().Remove(temporary)
		return err
	}
	dir, err := p.dir().Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Remove removes the file.
func (p *Place) Remove() error {
	if err := p.dir().Remove(p.name); err != nil {
		return named(p.path, err)
	}
	return nil
}

// Beside is the place of another name in the directory. It is closed by Close of p.
func (p *Place) Beside(name string) *Place {
	other := *p
	other.name, other.path = name, filepath.Join(filepath.Dir(p.path), name)
	return &other
}

// Owned is Regular by the rule of Place. Other accounts than root follow links by their own rights.
func Owned(path string, limit int64) ([]byte, fs.FileInfo, error) {
	if os.Geteuid() != 0 {
		return Regular(path, limit)
	}
	p, err := Find(path, false)
	if err != nil {
		return nil, nil, err
	}
	defer p.Close()
	return p.Read(limit)
}
