// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/pair"
	"imbang/internal/daemon/pair/shared"
	"imbang/internal/readfile"
)

// Bounds of files with certificates [bytes].
const (
	maxCertificate  = 1 << 20
	maxCertificates = 8 << 20 // of a push
)

// A file that has no certificate, as the peer is told of it.
const (
	printMissing  = "missing"
	printUnusable = "not usable"
)

// prints are the fingerprints of the files with certificates that layer 7 names, each read when it has
// changed.
type prints struct {
	of    map[string]string
	known map[string]fs.FileInfo
}

// certificateFiles are those that a configuration names; true: with a private key.
func certificateFiles(c *config.Config) (paths []string, key map[string]bool) {
	if c.Layer7 == nil {
		return nil, nil
	}
	return c.Layer7.Config.Files()
}

func (p *prints) look(c *config.Config) {
	paths, key := certificateFiles(c)
	of, known := make(map[string]string, len(paths)), make(map[string]fs.FileInfo, len(paths))
	for _, path := range paths {
		info, err := os.Stat(path)
		if before := p.known[path]; err == nil && before != nil && os.SameFile(before, info) && before.Size() == info.Size() && before.ModTime().Equal(info.ModTime()) {
			of[path], known[path] = p.of[path], before
			continue
		}
		of[path] = printMissing
		if !errors.Is(err, fs.ErrNotExist) {
			of[path] = printUnusable
			if text, _, err := readfile.Owned(path, maxCertificate); err == nil {
				of[path] = printOf(text, key[path])
			}
		}
		if usable(of[path]) {
			known[path] = info // otherwise the cause may be a link, or a directory
		}
	}
	p.of, p.known = of, known
}

// printOf is the fingerprint of all certificates of a text, with the end of the first one; of the key
// only that it is there and is the first one's.
func printOf(text []byte, key bool) string {
	sum, first := sha256.New(), (*x509.Certificate)(nil)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return printUnusable
		}
		if first == nil {
			first = one
		}
		_, _ = sum.Write(block.Bytes)
	}
	if first == nil {
		return printUnusable
	}
	if key {
		if _, err := tls.X509KeyPair(text, text); err != nil {
			return printUnusable
		}
	}
	return fmt.Sprintf("SHA-256 %x, until %s", sum.Sum(nil)[:8], first.NotAfter.UTC().Format(time.DateOnly))
}

// usable reports whether a print is one of certificates.
func usable(print string) bool { return print != printMissing && print != printUnusable }

// differ are the files of which the peer has others.
func (p *prints) differ(theirs map[string]string) (all []shared.Difference) {
	for _, path := range slices.Sorted(maps.Keys(p.of)) {
		if there, named := theirs[path]; named && there != p.of[path] {
			all = append(all, shared.Difference{Path: "file " + events.Printable(path), Ours: p.of[path], Theirs: events.Printable(there)})
		}
	}
	return all
}

// offered are the files for the peer; those that are not usable here are in the notes. Texts are sent
// with a push alone.
func (p *prints) offered(c *config.Config, push bool) (all []pair.Certificate, notes []string, err error) {
	p.look(c)
	size := 0
	_, key := certificateFiles(c)
	for _, path := range slices.Sorted(maps.Keys(p.of)) {
		one := pair.Certificate{Path: path, Print: p.of[path], Key: key[path]}
		if !usable(one.Print) {
			notes = append(notes, fmt.Sprintf("file %s is %s here and is not sent", path, one.Print))
			continue
		}
		if push {
			if one.Text, _, err = readfile.Owned(path, maxCertificate); err != nil {
				return nil, nil, err
			}
			if size += len(one.Text); size > maxCertificates {
				return nil, nil, fmt.Errorf("the files with certificates have more than %d MiB: copy them in another way, and push then", maxCertificates>>20)
			}
		}
		all = append(all, one)
	}
	return all, notes, nil
}

// wantedFiles are those of the peer's that this director does not have. Nothing but what the
// configuration names is accepted, and nothing but certificates.
func wantedFiles(c *config.Config, theirs []pair.Certificate) (all []pair.Certificate, err error) {
	_, key := certificateFiles(c)
	var p prints
	p.look(c)
	for _, one := range theirs {
		has, named := key[one.Path]
		switch {
		case !named || !filepath.IsAbs(one.Path) || has != one.Key:
			return nil, fmt.Errorf("file %s was sent, and the configuration does not name it so", events.Printable(one.Path))
		case len(one.Text) > maxCertificate || one.Text != nil && printOf(one.Text, has) != one.Print:
			return nil, fmt.Errorf("file %s: what was sent is not what was planned: look at the plan again (imbang peer push)", one.Path)
		case !usable(one.Print):
			return nil, fmt.Errorf("file %s: what was sent is %s", one.Path, events.Printable(one.Print))
		case p.of[one.Path] != one.Print:
			one.Had = p.of[one.Path]
			all = append(all, one)
		}
	}
	return all, nil
}

// writeCertificates writes files whole or not at all. A file that is replaced keeps owner and mode; a
// new one is root's, with mode 0600 if it has a private key, and 0644 otherwise. undo writes back what
// was there.
func writeCertificates(all []pair.Certificate) (undo func() error, err error) {
	var undone []func() error
	undo = func() error {
		var errs []error
		for _, f := range slices.Backward(undone) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, one := range all {
		back, err := writeCertificate(one)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write %s: %w", one.Path, err), undo())
		}
		undone = append(undone, back)
	}
	return undo, nil
}

func writeCertificate(one pair.Certificate) (undo func() error, err error) {
	p, err := readfile.Find(one.Path, true)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	former, info, err := p.Read(maxCertificate)
	if errors.Is(err, fs.ErrNotExist) {
		mode := fs.FileMode(0o644)
		if one.Key {
			mode = 0o600
		}
		return func() error { return at(one.Path, (*readfile.Place).Remove) }, p.Write(one.Text, func(f *os.File) error { return f.Chmod(mode) })
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		return at(one.Path, func(p *readfile.Place) error { return p.Write(former, like(info)) })
	}, p.Write(one.Text, like(info))
}

// at does something where a path leads.
func at(path string, do func(*readfile.Place) error) error {
	p, err := readfile.Find(path, false)
	if err != nil {
		return err
	}
	defer p.Close()
	return do(p)
}
